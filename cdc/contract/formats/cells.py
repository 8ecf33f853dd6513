"""Writers of single values that Avro and Protobuf share: what differs is how a number is written. Pure."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Sequence
from typing import TypeAlias

from cdc.contract.change import Row
from cdc.contract.formats.format import NOT_ENCODABLE

CellWriter: TypeAlias = Callable[[bytes], bytes]
"""Returns the bytes of a value for the server's text. It raises ``NOT_ENCODABLE`` for anything but such a text."""

NumberWriter: TypeAlias = Callable[[int], bytes]
"""Returns the bytes of a number, or of a length."""


class BeyondType(ValueError):
    """A value that its type in the format cannot hold, while the schema has no place for a text."""


def integer_writer(label: bytes, bits: int, number: NumberWriter) -> CellWriter:
    """Returns the writer of integers with so many bits; ``label`` precedes each."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def write(cell: bytes) -> bytes:
        found = int(cell)
        if not low <= found <= high:
            raise ValueError(f"it has more than {bits} bits")
        return label + number(found)

    return write


def text_writer(label: bytes, number: NumberWriter) -> CellWriter:
    """Returns the writer of texts in UTF-8."""

    def write(cell: bytes) -> bytes:
        if not cell.isascii():
            cell.decode()  # raises unless it is UTF-8
        return label + number(len(cell)) + cell

    return write


def bytes_writer(label: bytes, number: NumberWriter) -> CellWriter:
    """Returns the writer of bytes."""

    def write(cell: bytes) -> bytes:
        if cell[:2] != b"\\x":
            raise ValueError("not the hexadecimal form of bytes")
        raw = unhexlify(cell[2:])
        return label + number(len(raw)) + raw

    return write


def null_documents(row: Row, documents: Sequence[int]) -> tuple[int, ...]:
    """Returns which of these places have the JSON document ``null``, which looks like NULL in JSON."""
    return tuple([i for i in documents if isinstance(cell := row[i], bytes) and cell.strip() == b"null"])


def problem_of(write: CellWriter, cell: bytes) -> str:
    """Returns why this text cannot be encoded; empty if it can."""
    try:
        write(cell)
    except BeyondType as error:
        return str(error)
    except NOT_ENCODABLE as error:
        return f"{type(error).__name__} {error} in {cell[:60]!r}"
    return ""
