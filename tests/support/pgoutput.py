"""Writes messages of pgoutput as a server does, to compare with what was decoded.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cdc.bridge.decode.pgoutput import Message
from cdc.contract.change import UNCHANGED_TOAST, Delete, Insert, Update


def frame(payload: bytes) -> bytes:
    """A message as XLogData carries it."""
    return b"w" + bytes(24) + payload


def begin(lsn: int, xid: int) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 0, xid)


def commit(lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 10, 0)


def row_bytes(row: Sequence[object]) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(map(_cell_bytes, row))


def _cell_bytes(cell: object) -> bytes:
    if isinstance(cell, bytes):
        return b"t" + struct.pack(">I", len(cell)) + cell
    return b"u" if cell is UNCHANGED_TOAST else b"n"


def encoded(message: Message, xid: int | None) -> bytes | None:
    """A row message as the server would have sent it; None for other messages."""
    head = b"" if xid is None else struct.pack(">I", xid)
    match message:
        case Insert(relation, new):
            return b"I" + head + struct.pack(">I", relation.relation_id) + b"N" + row_bytes(new)
        case Update(relation, old, old_is_full, new):
            before = b"" if old is None else (b"O" if old_is_full else b"K") + row_bytes(old)
            return b"U" + head + struct.pack(">I", relation.relation_id) + before + b"N" + row_bytes(new)
        case Delete(relation, old, old_is_full):
            tag = b"O" if old_is_full else b"K"
            return b"D" + head + struct.pack(">I", relation.relation_id) + tag + row_bytes(old)
        case _:
            return None
