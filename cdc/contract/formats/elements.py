"""Splits array literals for formats whose arrays are flat lists. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from cdc.contract.formats.arrays import array_literal, parse_array

Split: TypeAlias = Callable[[bytes], Sequence[bytes | None]]
"""Returns the elements of a literal, None for NULL.

It raises ``ValueError`` if JSON writes the array as a string or as lists in a list, or if it is not an array.
"""


def splitter(delimiter: str, *, is_builtin: bool, is_document: bool) -> Split:
    """Returns what splits the literals of a column.

    Args:
        delimiter: the character between elements.
        is_builtin: whether the element type is PostgreSQL's own.
        is_document: whether the elements are JSON documents.
    """

    def exact(cell: bytes) -> Sequence[bytes | None]:
        literal = cell.decode()
        elements = parse_array(literal, str, delimiter)
        if elements is None or any(type(each) is list for each in elements):
            raise ValueError("the array is not flat")
        if not is_builtin and array_literal(elements) != literal:
            raise ValueError("the text is not exactly an array's")
        if is_document and any(each is not None and each.strip() == "null" for each in elements):
            raise ValueError("readers of JSON could not tell a document from NULL")
        return [None if each is None else each.encode() for each in elements]

    def fast(cell: bytes) -> Sequence[bytes | None]:
        # If no element has quotes or braces, it is enough to look for commas
        if b'"' in cell or cell.rfind(b"{") or cell.find(b"}") + 1 != len(cell):
            return exact(cell)
        bare = cell[1:-1].split(b",") if len(cell) > 2 else []
        return [None if each == b"NULL" else each for each in bare] if b"NULL" in cell else bare

    return fast if is_builtin and not is_document and delimiter == "," else exact
