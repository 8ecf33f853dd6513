"""Encodes rows as JSON objects with fixed members. Together with ``bridge.decode.tuples``, this is the hottest code.

For each set of cells that are NULL, there is a template with everything that does not change from row to row. Cells
that are not JSON yet are converted in place; then all cells are put into the template in one step. Looking for NULLs
would take a third of the time, so a table is assumed to have none until the first one raises an exception.

``_objects.pyx`` does the same in C for ordinary rows; for most arrays, it calls the converters here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Row
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.values import Converter, document, number, plain

_SPLICED: Final[dict[Converter, bytes]] = {number: b"%b", document: b"%b", plain: b'"%b"'}
"""Converters that need no call, because the template does their work."""

_MAX_TEMPLATES: Final = 1024
"""Limit per table: far more than real tables have patterns of NULLs, and still small with 2 kB each."""


class _Template(NamedTuple):
    text: bytes
    converted: tuple[tuple[int, Converter], ...]


class ObjectForm:
    """Encodes rows as objects, one member per cell.

    Args:
        names: the members' names, in order.
        converters: the members' converters; never called with NULL, which becomes ``null``.
    """

    __slots__ = ("_converters", "_documents", "_expects_null", "_labels", "_templates", "_whole")

    def __init__(self, names: Sequence[str], converters: Sequence[Converter]) -> None:
        self._labels = [orjson.dumps(name) + b":" for name in names]
        self._converters = tuple(converters)
        self._documents = tuple(i for i, convert in enumerate(converters) if convert is document)
        self._expects_null = False
        self._templates: dict[tuple[int, ...], _Template] = {}
        self._whole = self._template(())

    @property
    def bare_template(self) -> bytes | None:
        """A template with which ``template % cells`` encodes rows without NULLs; None if it takes more than that."""
        template, converted = self._whole
        return None if converted or self._documents else template

    @property
    def compiled(self) -> Any:
        """A writer in C that makes the same objects, and declines some rows; None if it was not compiled."""
        if (module := twin("cdc.contract.formats._objects")) is None:
            return None
        return module.ObjectWriter([label[:-1] for label in self._labels], self._converters)

    def encode(self, row: Row) -> bytes:
        """Returns the row's object.

        Raises:
            NOT_ENCODABLE: a cell was not sent or does not have its type's form, or the row has another width.
        """
        if self._expects_null:
            return self._encode_with_nulls(row)
        try:
            template, converted = self._whole
            cells = list(row)
            for i, convert in converted:
                cells[i] = convert(cells[i])  # type: ignore[arg-type]  # None raises
            encoded = template % tuple(cells)
        except NOT_ENCODABLE:
            if None not in row:
                raise
            self._expects_null = True
            return self._encode_with_nulls(row)
        if not encoded.isascii():
            encoded.decode()  # raises unless it is UTF-8: documents were put into the object unread
        return encoded

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Returns the indexes of json and jsonb columns with the document ``null``, which looks like NULL."""
        return tuple([i for i in self._documents if isinstance(cell := row[i], bytes) and cell.strip() == b"null"])

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        try:
            self._converters[place](cell).decode()
        except NOT_ENCODABLE as error:
            return f"{type(error).__name__} {error} in {cell[:60]!r}"
        return ""

    def _encode_with_nulls(self, row: Row) -> bytes:
        nulls = tuple([i for i, cell in enumerate(row) if cell is None])
        template, converted = self._templates.get(nulls) or self._template(nulls)
        cells = [cell for cell in row if cell is not None] if nulls else list(row)
        for i, convert in converted:
            cells[i] = convert(cells[i])  # type: ignore[arg-type]  # UNCHANGED_TOAST raises
        encoded = template % tuple(cells)
        if not encoded.isascii():
            encoded.decode()
        return encoded

    def _template(self, nulls: tuple[int, ...]) -> _Template:
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
        members, present = [], []
        for i, (label, convert) in enumerate(zip(self._labels, self._converters, strict=True)):
            if i in nulls:
                members.append(label.replace(b"%", b"%%") + b"null")
            else:
                members.append(label.replace(b"%", b"%%") + _SPLICED.get(convert, b"%b"))
                present.append(convert)
        converted = tuple((i, convert) for i, convert in enumerate(present) if convert not in _SPLICED)
        self._templates[nulls] = template = _Template(b"{" + b",".join(members) + b"}", converted)
        return template
