"""Says what Debezium's ``source`` says of a record: where a change comes from, and when it was. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from cdc.contract.header import Stamp

CONNECTOR: Final = "postgresql"
_LOW_32: Final = 0xFFFFFFFF


class EventSource(NamedTuple):
    """What is the same in all records of a bridge.

    Attributes:
        version: of cdc.
        name: the bridge's name, which Debezium calls the topic prefix.
        database: the name of the source database.
    """

    version: str
    name: str
    database: str


class ChangePlace(NamedTuple):
    """The place of a change.

    Attributes:
        position: the LSN of its commit, as a number.
        sequence: orders the changes, as the text of a JSON array.
        transaction: the transaction's id as the stream has it, in 32 bits; None for a row that was read.
        micros: the time of its commit, µs since 1970.
    """

    position: int
    sequence: bytes
    transaction: int | None
    micros: int


def place_of(op: bytes, stamp: Stamp) -> ChangePlace:
    """Returns where a change is, from the header of its record."""
    _, lsn, seq, xid, ts, _ = stamp
    high, _, low = lsn.partition(b"/")
    position = int(high, 16) << 32 | int(low, 16)
    sequence = b'[null,"%d"]' % position if op == b"r" else b'["%d","%b"]' % (position, seq)
    return ChangePlace(position, sequence, None if xid is None else int(xid) & _LOW_32, int(ts))
