"""Makes and parses the values of history topics: what each published change did to one key.

``{"v":1,"op":"u","lsn":"0/1925728","seq":17,"xid":734,"ts":1795190486566123,"schema":"3f2a91c05b7e6d14",
"new":{…},"old":{…}}`` (no line break), with ``"toast":"newer"`` before ``new`` if the header says so. ``op`` says what
happened to this key. It is the header's, except for a change of the key: there the header says ``u``, and the history
says ``d`` for the old key and ``c`` for the new one. ``new`` is the state topic's value, byte for byte; where that
is not JSON, the JSON of the same row. ``old`` is what the stream sent of the row before: all columns, those of the
identity, or null. Both records of a changed key have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cdc.base.lsn import LSN
from cdc.contract.header import BACKFILL, DELETE, INSERT, NEWER, TRUNCATE, UPDATE, stamp_of
from cdc.contract.json_members import member_texts
from cdc.contract.parsing import not_of_contract
from cdc.contract.record import Position

_TOAST: Final = f";toast={NEWER}".encode()
_OPS: Final = frozenset((INSERT, UPDATE, DELETE, BACKFILL, TRUNCATE))


class HistoryEncoder:
    """Makes the history's value for each record, in the order in which records go to the state topics.

    Args:
        topics: history topic by state topic; looked up each time, so it may grow.
        as_json: turns a state topic's value, with its header, into the JSON of the same row, if it is in another format
            or form.
    """

    def __init__(self, topics: Mapping[str, str], as_json: Callable[[bytes, bytes], bytes]) -> None:
        self.topics = topics
        self._as_json = as_json
        self._moved: tuple[bytes, bytes] | None = None

    def value(self, value: bytes | None, header: bytes, old: bytes | None) -> bytes:
        """Returns the history's value for a record of a state topic.

        Args:
            value, header: of that record.
            old: what the stream says about the row before the change, as ``TableEncoder.old`` makes it.
        """
        op, lsn, seq, xid, ts, schema = stamp_of(header)
        position = lsn, seq
        # A changed key is two records at one position: the old key's tombstone, then the row under the new key
        if op == b"u" and value is None:
            op, self._moved = b"d", position
        elif op == b"u" and position == self._moved:
            op = b"c"
        return b'{"v":1,"op":"%b","lsn":"%b","seq":%b,"xid":%b,"ts":%b,"schema":"%b",%b"new":%b,"old":%b}' % (
            op,
            lsn,
            seq,
            xid or b"null",
            ts,
            schema,
            b'"toast":"newer",' if _TOAST in header else b"",
            b"null" if value is None else self._as_json(value, header),
            old or b"null",
        )


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """A parsed value of a history topic.

    Attributes:
        op: c insert, u update, d delete, r backfill, t truncate.
        position: commit LSN and ordinal, as in the header.
        xid: 64-bit transaction id; None for backfills, sweeps and repairs.
        ts: commit time, µs since 1970; for a record without xid, the time at which it was published.
        schema: the relation's fingerprint.
        new: the row after the change, as JSON text by column; None if it was deleted.
        old: what is known of the row before the change, in the same form; may be only the identity's columns.
        is_newer: a value in ``new`` may be newer than the position says.
    """

    op: str
    position: Position
    xid: int | None
    ts: int
    schema: str
    new: Mapping[str, str] | None
    old: Mapping[str, str] | None
    is_newer: bool


def parse_history(value: bytes) -> HistoryRecord:
    """Parse a history value.

    Raises:
        DecodeError: not a history value of version 1.
    """
    try:
        fields = member_texts(value.decode())
        op = fields["op"][1:-1]
        if fields["v"] != "1" or op not in _OPS:
            raise ValueError("version or op")
        return HistoryRecord(
            op=op,
            position=Position(LSN.parse(fields["lsn"][1:-1]), int(fields["seq"])),
            xid=None if fields["xid"] == "null" else int(fields["xid"]),
            ts=int(fields["ts"]),
            schema=fields["schema"][1:-1],
            new=None if fields["new"] == "null" else member_texts(fields["new"]),
            old=None if fields["old"] == "null" else member_texts(fields["old"]),
            is_newer="toast" in fields,
        )
    except (KeyError, ValueError) as error:
        raise not_of_contract("history", "history", value) from error
