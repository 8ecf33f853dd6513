"""A row as a store keeps it: where and when it came from, the record's key, and its value. Pure.

``{"at":[0,17,"0/1925728",1795190486566123,9],"key":{"id":42},"row":{"id":42,"name":"Ada"}}``: partition, offset, commit
LSN (``null`` where records have none), µs since 1970 (of the source's commit, or else of the record), and the key's
length in bytes. It is JSON, so that programs which look into the store themselves can read it; ``key`` and ``row`` are
the record's own bytes, unchanged, and are cut out again without parsing.
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
        partition: of its newest record.
        offset: of its newest record.
        lsn: of the commit that wrote it; None in topics of other programs.
        ts: µs since 1970 of that commit; in topics of other programs, of the record; 0 when nobody said.
    """

    key: bytes
    row: bytes
    partition: int
    offset: int
    lsn: LSN | None
    ts: int


def pack(key: bytes, row: bytes, partition: int, offset: int, lsn: bytes, ts: int) -> bytes:
    """Arguments as the attributes of ``StoredRow``; ``lsn`` as text in quotes, or ``null``."""
    return b'{"at":[%d,%d,%b,%d,%d],"key":%b,"row":%b}' % (partition, offset, lsn, ts, len(key), key, row)


def unpack(stored: bytes) -> StoredRow:
    """What ``pack`` made."""
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
    """As ``LSN.parse``, of what we wrote ourselves: in quotes, and surely an LSN."""
    high, _, low = written[1:-1].partition(b"/")
    return LSN(int(high, 16) << 32 | int(low, 16))
