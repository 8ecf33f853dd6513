"""A PostgreSQL in memory: its WAL, its catalog, its slots and its locks; also as a standby that replays another's WAL.

A commit has two steps, as in the real server: it is written into the WAL, from where it is streamed, and later it
leaves the running transactions, so that snapshots see it. Everything that a test does to it is a method of a
transaction (``begin``) or of the server. What the server may do by itself is in ``steps``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from psycopg import errors

from tests.world.postgres_errors import failure
from tests.world.postgres_tables import Heap, Row, RowVersion, Sees, Work, WorldPublication, WorldTable
from tests.world.postgres_transaction import ALTER, PUBLISH, READ, WRITE, WorldTransaction, split

if TYPE_CHECKING:
    from tests.world.postgres_sessions import ServerSession
    from tests.world.turns import Turns

Rows = dict[tuple[bytes | None, ...], Row]
"""Rows by key."""

CONFLICTS: Final = {
    READ: {ALTER},
    WRITE: {"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", ALTER},
    PUBLISH: {PUBLISH, "ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", ALTER},
    "ShareLock": {WRITE, PUBLISH, "ShareRowExclusiveLock", "ExclusiveLock", ALTER},
    "ExclusiveLock": {WRITE, PUBLISH, "ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", ALTER},
    ALTER: {READ, WRITE, PUBLISH, "ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", ALTER},
}
"""https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-TABLES"""

FIRST_LSN: Final = 0x1500000
_ALIGNED: Final = 64
"""Positions are multiples of it, so that none lies just behind the header of a page."""


class LockHolder(Protocol):
    """A session or a transaction that holds locks; a prepared transaction has no process."""

    pid: int | None
    application: str
    since: float


class WorldSlot:
    """A logical slot for pgoutput.

    Attributes:
        confirmed: everything that commits before it is confirmed.
        saved: where the slot is after a crash.
        reader: the session that reads from it.
        is_lost: whether the server has given up the WAL that it needs.
    """

    __slots__ = ("confirmed", "is_lost", "name", "reader", "saved")

    def __init__(self, name: str, confirmed: int) -> None:
        self.name = name
        self.confirmed = self.saved = confirmed
        self.reader: ServerSession | None = None
        self.is_lost = False

    def save(self) -> None:
        """Write the confirmed position to disk, as a checkpoint does."""
        self.saved = self.confirmed


class Altered(NamedTuple):
    """What one commit changed in the catalog, from its position on."""

    lsn: int
    tables: dict[int, WorldTable | None]
    publications: dict[str, WorldPublication]


class WorldServer:
    """One server.

    Args:
        turns: the scheduler.
        name: its host name.
        first_xid: the first transaction id, with the epoch.

    Attributes:
        tables: what everybody's catalog shows, by oid.
        publications: the publications that everybody sees, by name.
        aborted: the large transactions that were rolled back.
        published_at: where commits that altered a publication end.
        commits: the transactions whose commit is in the WAL, in that order.
        insert_lsn: the end of the WAL.
        flush_lsn: the end of the WAL that is on disk, and thus streamed.
        toast_bytes: longer values are stored out of line.
        block_stride: how many of a reader's blocks a block counts for; large to divide a small table into chunks.
        streamed_after: how many changes of a transaction fit into memory.
        upstream: the server whose WAL this one replays; None for a primary.
        is_away: whether nobody listens.
        answers: whether it does what it is asked; if not, whoever asks waits.
        wal_sender_timeout_s: how long a reader of a slot may be silent.
    """

    def __init__(self, turns: Turns, name: str = "primary", *, first_xid: int = 700) -> None:
        self.turns = turns
        self.name = name
        self.database, self.database_oid = "shop", 16384
        self.system_identifier = "7300000000000000001"
        self.version = 160_004
        self.timeline = 1
        self.timelines: list[tuple[int, int]] = []
        self.started = f"2024-01-01 00:00:00+00 {name}"
        self.tables: dict[int, WorldTable] = {}
        self.heaps: dict[int, Heap] = {}
        self.publications: dict[str, WorldPublication] = {}
        self.commits: list[WorldTransaction] = []
        self.aborted: list[WorldTransaction] = []
        self.altered: list[Altered] = [Altered(0, {}, {})]
        self.published_at: list[int] = []
        self.insert_lsn = self.flush_lsn = FIRST_LSN
        self.next_xid, self.latest_completed = first_xid, first_xid - 1
        self.running: dict[int, WorldTransaction] = {}
        self.prepared: dict[str, WorldTransaction] = {}
        self.slots: dict[str, WorldSlot] = {}
        self.locks: dict[int, list[tuple[LockHolder, str]]] = {}
        self.sessions: list[ServerSession] = []
        self.advisory: dict[str, ServerSession] = {}
        self.toast_bytes = 2_000
        self.block_stride = 1
        self.streamed_after = 1_000
        self.upstream: WorldServer | None = None
        self.standbys: list[WorldServer] = []
        self.replayed = 0
        self.is_away = False
        self.answers = True
        self.wal_sender_timeout_s = 60.0
        self._next_oid, self._next_pid = 16_500, 100

    # What a workload does.

    def begin(self, application: str = "app") -> WorldTransaction:
        """Begin a transaction."""
        assert self.upstream is None, "a standby takes no writes"
        return WorldTransaction(self, self.new_pid(), application)

    def commit_prepared(self, gid: str) -> int | None:
        """COMMIT PREPARED. Returns the position where the commit ends."""
        return self.prepared.pop(gid).commit()

    def rewrite(self, table: str) -> None:
        """VACUUM FULL: the rows move into another file, without a word in the stream."""
        transaction = self.begin()
        info = transaction.to_alter(table)
        versions = [each for each in self.heaps[info.filenode].versions if not each.is_dead]
        transaction.replace_file(table, versions)
        transaction.commit()

    def rows(self, table: str) -> Rows:
        """Returns what a new snapshot sees, by key."""
        info = self.find(*split(table))
        assert info is not None, f"no table {table}"
        return self._rows(info, self.sees())

    def rows_at(self, table: str, lsn: int) -> Rows | None:
        """Returns what had committed up to a position, by key; None if there was no table of that name."""
        for info in self.tables_at(lsn).values():
            if (info.namespace, info.name) == split(table):
                return self._rows(info, Sees(0, 0, frozenset(), lsn))
        return None

    def history(self, table: str) -> Iterator[tuple[int, Rows | None]]:
        """Yields, for the end of each commit, what ``rows_at`` returns there."""
        for each in self.commits:
            assert each.end_lsn is not None
            yield each.end_lsn, self.rows_at(table, each.end_lsn)

    def tables_at(self, lsn: int) -> dict[int, WorldTable]:
        """Returns the catalog as the commits up to a position left it."""
        tables: dict[int, WorldTable | None] = {}
        for altered in self.altered:
            if altered.lsn <= lsn:
                tables.update(altered.tables)
        return {oid: info for oid, info in tables.items() if info is not None}

    def _rows(self, info: WorldTable, sees: Sees) -> Rows:
        found: Rows = {}
        for version in sees.rows(self.heaps[info.filenode]):
            row = info.row(version.cells)
            key = tuple(row[name] for name in info.key)
            assert key not in found, f"{info.name} has two rows with key {key}"
            found[key] = row
        return found

    # What goes wrong, and what it does by itself.

    def steps(self) -> list[Callable[[], object]]:
        """Returns what the server may do by itself now."""
        found: list[Callable[[], object]] = []
        if self.is_away or not self.answers:
            return found
        if self.upstream is None:
            if self.flush_lsn < self.insert_lsn:
                found.append(self.flush)
            found += [each.show for each in self.commits[-16:] if not each.is_over]
            found += [each.save for each in self.slots.values() if each.saved < each.confirmed]
        elif self.replayed < self.upstream.flush_lsn and not self.upstream.is_away:
            found += [each.end for each in self._in_the_way()] or [self.replay]
        for session in self.sessions:
            found += session.steps()
        return found

    def lose(self, process: Hashable, *, is_noticed: bool = True) -> None:
        """End the sessions of a program that died.

        Args:
            process: the program, as ``Turns.process`` names it.
            is_noticed: whether the server notices at once; otherwise each session's end is one of its ``steps``.
        """
        for session in [each for each in self.sessions if each.process == process]:
            if is_noticed:
                session.end()
            else:
                session.is_orphan = True

    def go_away(self, *, is_crash: bool = True) -> None:
        """Stop: all sessions break, their transactions are rolled back, and nobody listens until ``come_back``.

        Args:
            is_crash: forget what slots were told since they were last saved.
        """
        assert all(each.end_lsn is None or each.end_lsn <= self.flush_lsn for each in self.commits), "not modelled"
        self.is_away = True
        for slot in self.slots.values():
            if is_crash:
                slot.confirmed = slot.saved
            slot.save()
        for session in list(self.sessions):
            session.end()
        for transaction in list(self.running.values()):
            if transaction.end_lsn is not None:
                transaction.show()
            elif transaction.gid is None:
                transaction.abort()
        self.insert_lsn = self.flush_lsn

    def come_back(self) -> None:
        """Start again."""
        self.is_away = False
        self.started += "+"

    def lose_slot(self, name: str) -> None:
        """Give up the WAL that a slot needs; whoever reads from it is thrown out."""
        slot = self.slots[name]
        slot.is_lost = True
        if slot.reader is not None:
            slot.reader.end()

    def standby(self, name: str) -> WorldServer:
        """Returns a new standby, which has all that is flushed."""
        made = WorldServer(self.turns, name)
        made.upstream = self
        made.system_identifier, made.timeline, made.timelines = self.system_identifier, self.timeline, self.timelines
        made.version, made.toast_bytes, made.block_stride = self.version, self.toast_bytes, self.block_stride
        made.heaps, made.commits, made.altered = self.heaps, self.commits, self.altered
        self.standbys.append(made)
        made.replay(self.flush_lsn)
        return made

    def replay(self, lsn: int | None = None) -> None:
        """Show what the upstream has flushed, up to a position; without one, up to the next commit or the end.

        It stops before a commit that has altered a table which somebody reads here.
        """
        assert self.upstream is not None
        end = self.upstream.flush_lsn if lsn is None else min(lsn, self.upstream.flush_lsn)
        while self.replayed < end and not self._in_the_way():
            later = bisect_right(self.commits, self.replayed, key=_end)
            self.replayed = min(end, _end(self.commits[later]) if later < len(self.commits) else end)
            if lsn is None:
                break
        self.tables = self.tables_at(self.replayed)
        self.publications = self.publications_at(self.replayed)

    def _in_the_way(self) -> list[ServerSession]:
        """Returns sessions of a standby that have locked a table which the next commit has altered."""
        later = bisect_right(self.commits, self.replayed, key=_end)
        altered = self.commits[later].tables if later < len(self.commits) else {}
        holders = [holder for oid in altered for holder, _ in self.locks.get(oid, ())]
        return [each for each in self.sessions if each.transaction in holders or each in holders]

    def promote(self) -> None:
        """Take over as a primary on a timeline of its own. What was not replayed is lost, and so are the slots."""
        assert self.upstream is not None
        upstream, left = self.upstream, self.replayed
        upstream.standbys.remove(self)
        self.upstream = None
        kept = bisect_right(self.commits, left, key=_end)
        assert not upstream.prepared, "not modelled"
        known = [each for each in (*self.commits, *upstream.running.values()) if each.changes]
        self.next_xid = max((each.xid for each in known if each.changes[0].lsn < left), default=699) + 1
        self.altered = [each for each in self.altered if each.lsn <= left]
        self.published_at = [each for each in upstream.published_at if each <= left]
        self.heaps = {name: _as_of(heap, left) for name, heap in self.heaps.items()}
        self.commits = self.commits[:kept]
        self.latest_completed = self.next_xid - 1
        self.timelines = [*self.timelines, (self.timeline, left)]
        self.timeline += 1
        self._next_oid = upstream.new_oid() + 1_000
        self.insert_lsn = self.flush_lsn = left + _ALIGNED

    # What its parts do.

    def find(self, namespace: str, name: str) -> WorldTable | None:
        """Returns the table that everybody sees under a name."""
        for info in self.tables.values():
            if info.name == name and info.namespace == namespace:
                return info
        return None

    def sees(self) -> Sees:
        """Returns a new snapshot."""
        xmax = self.latest_completed + 1
        if self.upstream is not None:
            last = max((each.xid for each in self.commits[-64:] if _end(each) <= self.replayed), default=0) + 1
            return Sees(last, last, frozenset(), self.replayed)
        running = frozenset(xid for xid in self.running if xid < xmax)
        return Sees(min(running, default=xmax), xmax, running)

    def blocking(self, oid: int, mode: str, holder: LockHolder) -> list[tuple[LockHolder, str]]:
        """Returns who holds locks on a table that conflict with one that somebody else wants."""
        held = self.locks.get(oid)
        if not held:
            return []
        conflicts = CONFLICTS[mode]
        return [each for each in held if each[1] in conflicts and each[0] is not holder]

    def publications_at(self, lsn: int) -> dict[str, WorldPublication]:
        """Returns the publications as the commits up to a position left them."""
        return self.altered[bisect_right(self.altered, lsn, key=lambda each: each.lsn) - 1].publications

    def advance(self, size: int) -> int:
        """Write a record of about so many bytes into the WAL. Returns where it begins."""
        begin = self.insert_lsn
        self.insert_lsn += (size + _ALIGNED - 1) // _ALIGNED * _ALIGNED
        return begin

    def flush(self) -> None:
        """Have all of the WAL on disk."""
        self.flush_lsn = self.insert_lsn

    def write_background(self) -> None:
        """Write what belongs to no transaction, as the background writer does; nobody flushes it for now."""
        self.advance(_ALIGNED)

    def write_commit(self, transaction: WorldTransaction) -> None:
        """Write a transaction's commit record, and remember what it did to the catalog."""
        transaction.commit_lsn = self.advance(128)
        transaction.end_lsn = self.insert_lsn
        transaction.commit_us = int(self.turns.now * 1_000_000)
        self.commits.append(transaction)
        if transaction.tables or transaction.publication_changes:
            publications = dict(self.altered[-1].publications)
            for _, change in transaction.publication_changes:
                change(publications)
            if transaction.publication_changes:
                self.published_at.append(transaction.end_lsn)
            self.altered.append(Altered(transaction.end_lsn, dict(transaction.tables), publications))

    def show(self, transaction: WorldTransaction, works: Sequence[Work]) -> None:
        """Let new snapshots and everybody's catalog show what a transaction did."""
        for oid, info in transaction.tables.items():
            if info is None:
                self.tables.pop(oid, None)
            else:
                self.tables[oid] = info
        for _, change in transaction.publication_changes:
            change(self.publications)
        self.over(works)
        self.running.pop(transaction.xid, None)

    def over(self, works: Iterable[Work]) -> None:
        """Note that these transactions are over."""
        self.latest_completed = max([self.latest_completed, *(each.xid for each in works)])

    def new_xid(self) -> int:
        """Returns the next transaction id."""
        self.next_xid += 1
        return self.next_xid - 1

    def new_oid(self) -> int:
        """Returns the next oid."""
        self._next_oid += 1
        return self._next_oid

    def new_file(self) -> int:
        """Returns the name of a new, empty file."""
        name = self.new_oid()
        self.heaps[name] = Heap()
        return name

    def new_pid(self) -> int:
        """Returns the id of a new process."""
        self._next_pid += 1
        return self._next_pid

    def make_slot(self, name: str, is_given_up: Callable[[], bool], timeout_s: float) -> int:
        """Make a slot, which waits for every transaction that is running.

        Returns:
            Where it begins: it has what commits from there on.

        Raises:
            psycopg.errors.QueryCanceled: the time is over.
            psycopg.errors.DuplicateObject: it is there.
        """
        assert self.upstream is None, "not modelled"
        if name in self.slots:
            raise failure(errors.DuplicateObject, f'replication slot "{name}" already exists')
        for _ in range(2):  # first those that were running, then those that began meanwhile
            before = set(self.running.values())
            self.advance(_ALIGNED)
            if not before:
                break
            if not self.turns.wait(partial(_are_over, before, is_given_up), timeout_s) or is_given_up():
                raise failure(errors.QueryCanceled, "canceling statement due to statement timeout")
        if name in self.slots:
            raise failure(errors.DuplicateObject, f'replication slot "{name}" already exists')
        self.advance(_ALIGNED)
        self.flush()
        self.slots[name] = WorldSlot(name, self.insert_lsn)
        return self.insert_lsn


def _are_over(transactions: Collection[WorldTransaction], is_given_up: Callable[[], bool]) -> bool:
    return is_given_up() or all(each.is_over for each in transactions)


def _end(transaction: WorldTransaction) -> int:
    assert transaction.end_lsn is not None
    return transaction.end_lsn


def _as_of(heap: Heap, lsn: int) -> Heap:
    """Returns what a position has of a file: no version and no removal that committed later."""
    copy, sees = Heap(), Sees(0, 0, frozenset(), lsn)
    copy.blocks = heap.blocks
    for version in heap.versions:
        if sees.is_done(version.writer):
            kept = RowVersion(version.cells, version.writer, version.block)
            kept.remover = version.remover if version.remover and sees.is_done(version.remover) else None
            copy.versions.append(kept)
            copy.current.append(kept)
    return copy
