"""Makes the frames of a walsender: pgoutput's messages of protocols 1 and 2, and keepalives.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from psycopg import errors

from tests.world.postgres_errors import failure
from tests.world.postgres_tables import Attribute, Cells, Work, WorldTable

if TYPE_CHECKING:
    from tests.world.postgres import WorldServer
    from tests.world.postgres_transaction import Change, WorldTransaction

_EPOCH_US: Final = 946_684_800_000_000
_XID: Final = 0xFFFFFFFF
_DATA: Final = struct.Struct(">cQQq")
_KEEPALIVE: Final = struct.Struct(">cQqB")
_BEGIN: Final = struct.Struct(">cQqI")
_COMMIT: Final = struct.Struct(">cBQQq")
_STREAM_COMMIT: Final = struct.Struct(">cIBQQq")
_START: Final = struct.Struct(">cI?")
_ABORT: Final = struct.Struct(">cII")
_NUMBER: Final = struct.Struct(">I")
_ROW: Final = struct.Struct(">cI")
_COUNT: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">cI")
_COLUMN: Final = struct.Struct(">Ii")
_STATUS: Final = struct.Struct(">BQQQqB")


class _Known(NamedTuple):
    """What a walsender remembers of a table."""

    is_carried: bool
    is_described: bool


class _Streamed:
    """A transaction of which blocks were sent while it runs.

    Attributes:
        sent: where the last change lies that was sent.
        works: the transactions and subtransactions whose changes were sent.
        described: the oids of tables that were described in its blocks.
    """

    __slots__ = ("described", "sent", "works")

    def __init__(self) -> None:
        self.sent = 0
        self.works: set[Work] = set()
        self.described: set[int] = set()


class Walsender:
    """Decodes a server's WAL for one reader of a slot.

    Args:
        server: the server.
        publication: the name of the publication.
        start: what commits before it is left out.
        is_streaming: whether the reader takes transactions of more than ``WorldServer.streamed_after`` changes in
            blocks, before they commit.

    Attributes:
        read: the position up to which the WAL is decoded.
        outbox: the frames that are on their way.
    """

    def __init__(self, server: WorldServer, publication: str, start: int, *, is_streaming: bool = False) -> None:
        self._server = server
        self._publication = publication
        self._is_streaming = is_streaming
        self._next = bisect_left(server.commits, start, key=lambda each: each.commit_lsn or 0)
        self._known: dict[int, _Known] = {}
        self._streamed: dict[WorldTransaction, _Streamed] = {}
        self._flushed = self._told = 0
        self.read = start
        self.outbox: deque[bytes] = deque()

    @property
    def has_more(self) -> bool:
        """Whether there is something to send."""
        if self.outbox or self._has_commit() or self._is_block_due(self._server.flush_lsn):
            return True
        return self._flushed < self._server.flush_lsn and self._told < self._server.flush_lsn

    def work(self) -> None:
        """Decode what comes next: a block, a transaction, or how far the WAL is read.

        Raises:
            psycopg.errors.UndefinedObject: there was no such publication at that time.
        """
        server = self._server
        while not self.outbox and self._has_commit():
            transaction = server.commits[self._next]
            if self._is_block_due(transaction.commit_lsn or 0):
                self._send_blocks(transaction.commit_lsn or 0)
                continue
            self._next += 1
            self._send(transaction)
            self.read = max(self.read, transaction.end_lsn or 0)
        if not self.outbox and self._is_block_due(server.flush_lsn):
            self._send_blocks(server.flush_lsn)
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
        """Send a transaction that commits, if the publication carries a change of it."""
        commit_us, end = transaction.commit_us - _EPOCH_US, transaction.end_lsn or 0
        positions = (0, transaction.commit_lsn or 0, end, commit_us)
        streamed = self._streamed.pop(transaction, None)
        if streamed is not None:
            rest = [each for each in transaction.changes if each.lsn > streamed.sent]
            if rest:
                self._send_block(transaction, streamed, rest)
            self._put(end, _STREAM_COMMIT.pack(b"c", transaction.xid & _XID, *positions))
        elif self._send_changes(transaction, transaction.changes, None):
            self._put(end, _COMMIT.pack(b"C", *positions))
        # What was altered is looked up again, also by transactions that began before
        for oid in transaction.altered:
            self._forget(oid)
        if transaction.publication_changes:
            self._forget_all()
        for oid in () if streamed is None else streamed.described & self._known.keys():
            self._known[oid] = self._known[oid]._replace(is_described=True)

    def _send_changes(self, transaction: WorldTransaction, changes: list[Change], streamed: _Streamed | None) -> bool:
        """Send what the publication carries of these changes. Returns whether there was something."""
        has_begun = False
        altered = self._publication_altered_at(transaction, since=changes[0].lsn if changes else 0)
        for change in changes:
            while altered and altered[-1] <= change.lsn:
                altered.pop()
                self._forget_all()
            if change.kind == "X":
                self._forget(change.table.oid)
                continue
            tables = [each for each in (change.table, *change.others) if self._carries(each, change.lsn, transaction)]
            if not tables:
                continue
            if not has_begun and streamed is None:
                begin = _BEGIN.pack(
                    b"B", transaction.commit_lsn or 0, transaction.commit_us - _EPOCH_US, transaction.xid & _XID
                )
                self._put(change.lsn, begin)
            has_begun = True
            for table in tables:
                if self._is_to_describe(table.oid, streamed):
                    self._put_change(change, _relation(table), streamed)
            self._put_change(change, _message(change, tables), streamed)
        if altered:  # after the last change, and before the commit
            self._forget_all()
        return has_begun

    def _is_to_describe(self, oid: int, streamed: _Streamed | None) -> bool:
        """Whether a table has to be described, and from now on not again. Each streamed transaction has its own."""
        if streamed is not None:
            is_new = oid not in streamed.described
            streamed.described.add(oid)
            return is_new
        is_new = not self._known[oid].is_described
        self._known[oid] = _Known(is_carried=True, is_described=True)
        return is_new

    def _put_change(self, change: Change, payload: bytes, streamed: _Streamed | None) -> None:
        if streamed is not None:
            streamed.works.add(change.work)
            payload = payload[:1] + _NUMBER.pack(change.work.xid & _XID) + payload[1:]
        self._put(change.lsn, payload)

    def _forget(self, oid: int) -> None:
        self._known.pop(oid, None)
        for each in self._streamed.values():
            each.described.discard(oid)

    def _forget_all(self) -> None:
        self._known.clear()
        for each in self._streamed.values():
            each.described.clear()

    # Blocks of transactions that run.

    def _is_block_due(self, before: int) -> bool:
        if not self._is_streaming:
            return False
        return any(_undone(*each, before) for each in self._streamed.items()) or bool(self._large(before))

    def _large(self, before: int) -> list[tuple[WorldTransaction, list[Change]]]:
        """Returns transactions with so many changes before a position that they do not fit into memory."""
        server = self._server
        running = (each for each in server.running.values() if each.end_lsn is None)
        aborted = (each for each in server.aborted if not each.works[0].is_undone_before(before))
        found = []
        for transaction in (*running, *server.commits[self._next :], *aborted):
            if len(transaction.written) > server.streamed_after:
                sent = self._streamed[transaction].sent if transaction in self._streamed else 0
                changes = [
                    each
                    for each in transaction.written
                    if sent < each.lsn < before and not each.work.is_undone_before(before)
                ]
                if len(changes) > server.streamed_after:
                    found.append((transaction, changes))
        return found

    def _send_blocks(self, before: int) -> None:
        """Say what was rolled back, and send what does not fit into memory."""
        for transaction, streamed in list(self._streamed.items()):
            for work in _undone(transaction, streamed, before):
                self._put(work.undone_at, _ABORT.pack(b"A", transaction.xid & _XID, work.xid & _XID))
                streamed.works.discard(work)
                streamed.described.clear()  # the server forgets it all, also for a subtransaction
            if transaction.works[0].is_undone_before(before):
                del self._streamed[transaction]
        for transaction, changes in self._large(before):
            self._send_block(transaction, self._streamed.setdefault(transaction, _Streamed()), changes)

    def _send_block(self, transaction: WorldTransaction, streamed: _Streamed, changes: list[Change]) -> None:
        is_first = not streamed.sent
        self._put(changes[0].lsn, _START.pack(b"S", transaction.xid & _XID, is_first))
        self._send_changes(transaction, changes, streamed)
        streamed.sent = changes[-1].lsn
        self._put(streamed.sent, b"E")

    def _publication_altered_at(self, transaction: WorldTransaction, since: int) -> list[int]:
        """Returns where, during a transaction, it or another one altered a publication; the last place comes first."""
        own = [lsn for lsn, _ in transaction.publication_changes]
        others = self._server.published_at
        if not (own or others) or not transaction.changes:
            return []
        until = bisect_right(others, transaction.commit_lsn or transaction.changes[-1].lsn)
        return sorted(
            [*(lsn for lsn in own if lsn > since), *others[bisect_right(others, since) : until]], reverse=True
        )

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


def _undone(transaction: WorldTransaction, streamed: _Streamed, before: int) -> list[Work]:
    """Returns what was sent of a transaction and then rolled back; if that is all of it, only the transaction."""
    top = transaction.works[0]
    if top.is_undone_before(before):
        return [top]
    return sorted((each for each in streamed.works if each.is_undone_before(before)), key=lambda each: -each.xid)


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
