"""Makes the frames of a walsender: pgoutput's messages of protocol 1, in commit order, and keepalives.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from psycopg import errors

from tests.world.postgres_errors import failure
from tests.world.postgres_tables import Attribute, Cells, WorldTable

if TYPE_CHECKING:
    from tests.world.postgres import WorldServer
    from tests.world.postgres_transaction import Change, WorldTransaction

_EPOCH_US: Final = 946_684_800_000_000
_XID: Final = 0xFFFFFFFF
_DATA: Final = struct.Struct(">cQQq")
_KEEPALIVE: Final = struct.Struct(">cQqB")
_BEGIN: Final = struct.Struct(">cQqI")
_COMMIT: Final = struct.Struct(">cBQQq")
_ROW: Final = struct.Struct(">cI")
_COUNT: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">cI")
_COLUMN: Final = struct.Struct(">Ii")
_STATUS: Final = struct.Struct(">BQQQqB")


class _Known(NamedTuple):
    """What a walsender remembers of a table."""

    is_carried: bool
    is_described: bool


class Walsender:
    """Decodes a server's WAL for one reader of a slot.

    Args:
        server: the server.
        publication: the name of the publication.
        start: what commits before it is left out.

    Attributes:
        read: the position up to which the WAL is decoded.
        outbox: the frames that are on their way.
    """

    def __init__(self, server: WorldServer, publication: str, start: int) -> None:
        self._server = server
        self._publication = publication
        self._next = bisect_left(server.commits, start, key=lambda each: each.commit_lsn or 0)
        self._known: dict[int, _Known] = {}
        self._flushed = self._told = 0
        self.read = start
        self.outbox: deque[bytes] = deque()

    @property
    def has_more(self) -> bool:
        """Whether there is something to send."""
        if self.outbox or self._has_commit():
            return True
        return self._flushed < self._server.flush_lsn and self._told < self._server.flush_lsn

    def work(self) -> None:
        """Decode the next transaction, or say how far the WAL is read.

        Raises:
            psycopg.errors.UndefinedObject: there was no such publication at that time.
        """
        server = self._server
        while not self.outbox and self._has_commit():
            transaction = server.commits[self._next]
            self._next += 1
            self._send(transaction)
            self.read = max(self.read, transaction.end_lsn or 0)
        if not self.outbox:
            self.read = max(self.read, server.flush_lsn)
            if self._flushed < self.read and self._told < self.read:
                self.keep_alive()

    def keep_alive(self, *, wants_reply: bool = False) -> None:
        """Say how far the WAL is read."""
        self._told = self.read
        self.outbox.append(_KEEPALIVE.pack(b"k", self.read, self._now_us(), wants_reply))

    def hear(self, frame: bytes) -> int:
        """Take a status update. Returns the position that the reader confirms."""
        tag, _, flushed, _, _, wants_reply = _STATUS.unpack(frame)
        assert tag == ord("r"), frame
        self._flushed = max(self._flushed, flushed)
        if wants_reply:
            self.keep_alive()
        return int(flushed)

    def _has_commit(self) -> bool:
        commits = self._server.commits
        return self._next < len(commits) and (commits[self._next].end_lsn or 0) <= self._server.flush_lsn

    def _now_us(self) -> int:
        return int(self._server.turns.now * 1_000_000) - _EPOCH_US

    def _send(self, transaction: WorldTransaction) -> None:
        """Send a transaction, if the publication carries a change of it."""
        has_begun = False
        commit_us, end = transaction.commit_us - _EPOCH_US, transaction.end_lsn or 0
        altered = self._publication_altered_at(transaction)
        for change in transaction.changes:
            while altered and altered[-1] <= change.lsn:
                altered.pop()
                self._known.clear()
            if change.kind == "X":
                self._known.pop(change.table.oid, None)
                continue
            tables = [each for each in (change.table, *change.others) if self._carries(each, change.lsn, transaction)]
            if not tables:
                continue
            if not has_begun:
                has_begun = True
                begin = _BEGIN.pack(b"B", transaction.commit_lsn or 0, commit_us, transaction.xid & _XID)
                self._put(change.lsn, begin)
            for table in tables:
                if not self._known[table.oid].is_described:
                    self._known[table.oid] = _Known(is_carried=True, is_described=True)
                    self._put(change.lsn, _relation(table))
            self._put(change.lsn, _message(change, tables))
        if has_begun:
            self._put(end, _COMMIT.pack(b"C", 0, transaction.commit_lsn or 0, end, commit_us))
        # What was altered is looked up again, also by transactions that began before
        for oid in transaction.altered:
            self._known.pop(oid, None)
        if transaction.publication_changes:
            self._known.clear()

    def _publication_altered_at(self, transaction: WorldTransaction) -> list[int]:
        """Returns where, during a transaction, it or another one altered a publication; the last place comes first."""
        own = [lsn for lsn, _ in transaction.publication_changes]
        others = self._server.published_at
        if not (own or others) or not transaction.changes:
            return []
        since, until = transaction.changes[0].lsn, transaction.commit_lsn or 0
        return sorted([*own, *others[bisect_right(others, since) : bisect_right(others, until)]], reverse=True)

    def _carries(self, table: WorldTable, lsn: int, transaction: WorldTransaction) -> bool:
        """Whether the publication carries a table.

        The server remembers the answer until something is altered. So a change from before an alteration may be sent as
        if it came after it, if another transaction in between had the table looked up.
        """
        known = self._known.get(table.oid)
        if known is None:
            publications = self._server.publications_at(lsn)
            if transaction.publication_changes:
                publications = dict(publications)
                for at, change in transaction.publication_changes:
                    if at < lsn:
                        change(publications)
            publication = publications.get(self._publication)
            if publication is None:
                raise failure(errors.UndefinedObject, f'publication "{self._publication}" does not exist')
            known = self._known[table.oid] = _Known(publication.carries(table.oid), is_described=False)
        return known.is_carried

    def _put(self, lsn: int, payload: bytes) -> None:
        self.outbox.append(_DATA.pack(b"w", lsn, lsn, self._now_us()) + payload)


def _message(change: Change, tables: list[WorldTable]) -> bytes:
    table = change.table
    if change.kind == "T":
        return struct.pack(f">cIB{len(tables)}I", b"T", len(tables), 0, *(each.oid for each in tables))
    head = _ROW.pack(change.kind.encode(), table.oid)
    if change.kind == "I":
        assert change.new is not None
        return head + b"N" + _row(table, change.new)
    assert change.old is not None
    if change.kind == "D":
        return head + _old(table, change.old)
    assert change.new is not None
    old = b""
    if table.identity == "f" or any(
        table.cell(change.old, number) != change.new[number - 1] for number in table.identity_numbers
    ):
        old = _old(table, change.old)
    return head + old + b"N" + _row(table, change.new, change.kept)


def _old(table: WorldTable, cells: Cells) -> bytes:
    if table.identity == "f":
        return b"O" + _row(table, cells)
    numbers = table.identity_numbers
    parts = [_cell(table.cell(cells, each.number) if each.number in numbers else None) for each in table.columns]
    return b"K" + _COUNT.pack(len(parts)) + b"".join(parts)


def _row(table: WorldTable, cells: Cells, kept: frozenset[int] = frozenset()) -> bytes:
    parts = [b"u" if each.number in kept else _cell(table.cell(cells, each.number)) for each in table.columns]
    return _COUNT.pack(len(parts)) + b"".join(parts)


def _cell(value: bytes | None) -> bytes:
    return b"n" if value is None else _LENGTH.pack(b"t", len(value)) + value


def _relation(table: WorldTable) -> bytes:
    names = b"".join(each.encode() + b"\0" for each in (table.namespace, table.name))
    columns = b"".join(_column(each, is_key=each.number in table.identity_numbers) for each in table.columns)
    return _ROW.pack(b"R", table.oid) + names + table.identity.encode() + _COUNT.pack(len(table.columns)) + columns


def _column(attribute: Attribute, *, is_key: bool) -> bytes:
    return bytes([is_key]) + attribute.name.encode() + b"\0" + _COLUMN.pack(attribute.type_oid, -1)
