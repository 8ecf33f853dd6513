"""Decodes TupleData, the cells of one row. This is the bridge's hottest loop, hence by hand and without ``Reader``.

It keeps the bounds without a check per cell. Every cell moves the offset forward by its declared length, an unpacker
raises when it would read past the end, and the caller compares the last offset with the message's length. So a message
passes only if each declared length lies inside it, and a slice that came out too short never leaves this package.
"""

from __future__ import annotations

from typing import Literal

from cdc.bridge.decode.buffer import StructError, decode_error, unpack_length, unpack_u16
from cdc.contract.change import UNCHANGED_TOAST, Row, UnchangedToast

_TEXT = ord("t")
_NULL = ord("n")
_UNCHANGED = ord("u")
_BINARY = ord("b")


def read_row(kind: str, data: bytes, offset: int, width: int) -> tuple[Row, int]:
    """Returns the row at ``offset``, and the offset after it, which the caller must check against the length.

    Args:
        kind: the message's name, for errors.
        data: the whole message.
        offset: where the tuple begins, with its number of columns.
        width: the relation's number of columns.

    Raises:
        DecodeError: the row is truncated, or has a wrong number of columns or an unknown kind of cell.
    """
    cells: list[bytes | Literal[UnchangedToast.UNCHANGED_TOAST] | None] = []
    text, null = _TEXT, _NULL  # locals: this loop runs once per value of the whole database
    try:
        if unpack_u16(data, offset)[0] != width:
            raise decode_error(kind, offset, f"row of {unpack_u16(data, offset)[0]} columns, the relation has {width}")
        offset += 2
        for _ in range(width):
            cell = data[offset]
            if cell == text:
                start = offset + 5
                offset = start + unpack_length(data, offset)[0]
                cells.append(data[start:offset])
            elif cell == null:
                cells.append(None)
                offset += 1
            elif cell == _UNCHANGED:
                cells.append(UNCHANGED_TOAST)
                offset += 1
            else:
                raise decode_error(kind, offset, f"unknown kind of cell 0x{cell:02x}{_hint(cell)}")
    except (StructError, IndexError):
        raise decode_error(kind, offset, f"truncated in column {len(cells) + 1} of {width}") from None
    return tuple(cells), offset


def _hint(cell: int) -> str:
    return " (binary was not asked for)" if cell == _BINARY else ""
