"""A row as a store keeps it: where and when it came from, the record's key, and its value. Pure.

``{"at":[0,17,"0/1925728",1795190486566123,9],"key":{"id":42},"row":{"id":42,"name":"Ada"}}``: partition, offset, commit
LSN (``null`` where records have none), µs since 1970 (of the source's commit, or else of the record), and the key's
length in bytes. It is JSON, so that other programs can read rows straight from the store. ``key`` and ``row`` are the
record's own bytes, unchanged, and are cut out again without parsing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cdc.base.lsn import LSN

_BEFORE_KEY: Final = len(b'],"key":')
_BEFORE_ROW: Final = len(b',"row":')
_AT: Final = len(b'{"at":[')


class StoredRow(NamedTuple):
    """A row and its evidence.

    Attributes:
        key: JSON text.
        row: JSON text.
        partition: the partition of its newest record.
        offset: the offset of its newest record.
        lsn: the LSN of the commit that wrote it; None in topics of other programs.
        ts: µs since 1970 of that commit; in topics of other programs, of the record; 0 when unknown.
    """

    key: bytes
    row: bytes
    partition: int
    offset: int
    lsn: LSN | None
    ts: int


def pack(key: bytes, row: bytes, partition: int, offset: int, lsn: bytes, ts: int) -> bytes:
    """Writes a row. The arguments are the attributes of ``StoredRow``; ``lsn`` is text in quotes, or ``null``."""
    return b'{"at":[%d,%d,%b,%d,%d],"key":%b,"row":%b}' % (partition, offset, lsn, ts, len(key), key, row)


def unpack(stored: bytes) -> StoredRow:
    """Reads what ``pack`` wrote."""
    ends = stored.index(b"]")
    partition, offset, written, ts, key_size = stored[_AT:ends].split(b",")
    key = ends + _BEFORE_KEY
    row = key + int(key_size)
    return StoredRow(
        stored[key:row],
        stored[row + _BEFORE_ROW : -1],
        int(partition),
        int(offset),
        None if written == b"null" else _lsn(written),
        int(ts),
    )


def _lsn(written: bytes) -> LSN:
    """Parses an LSN in quotes without the checks of ``LSN.parse``: ``pack`` wrote it."""
    high, _, low = written[1:-1].partition(b"/")
    return LSN(int(high, 16) << 32 | int(low, 16))
