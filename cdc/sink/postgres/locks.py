"""Locks in the replica: who holds them while the sink waits, and which tables are left out until a lock is gone.

Theory of operation. When PostgreSQL cancels a statement after ``lock_timeout``, it does not say whom the statement
waited for; without a timeout it says nothing at all. So a thread with its own connection asks four times a second
whether the sink's sessions wait, and for whom.

A statement on a replica table waits for a few seconds only. Then its transaction is rolled back, the table is *held*,
and the next session goes on without it. As for a stopped table, the replica stores its state and its offsets. When none
of the blockers holds the lock any more, another session takes the table up again. The table then lags behind the others
until a cut includes it.

What is kept here tells people who is in the way, and tells the sink when to try again. No rows depend on it: a new
process knows nothing of it, and runs into the lock again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import psycopg
import structlog
from psycopg.errors import LockNotAvailable

from cdc.base.crashpoints import reach
from cdc.base.daemon.worker import beside
from cdc.base.errors import CdcError
from cdc.contract.ports import TableHeld

WAIT_FOR_ROWS: Final = "SET LOCAL lock_timeout = '3s'"
"""All tables wait this long for one. Most locks are gone sooner, and leaving a table out costs a new session."""
WAIT_FOR_SHAPE: Final = "SET LOCAL lock_timeout = '1s'"
"""ALTER TABLE waits only briefly, because new readers queue up after it. The sink tries again when they are gone."""
WAIT_LONG: Final = "SET LOCAL lock_timeout = 0"
"""No timeout, for what every cut needs: the sink's own tables, and constraints that span tables."""

_LOOK_S: Final = 0.25
_TOLD_AFTER_S: Final = 2.0
"""Shorter waits are normal and not logged. It is less than ``WAIT_FOR_ROWS``: at the timeout, the blocker is known."""
TELL_AGAIN_S: Final = 60.0
_STILL_KNOWN_S: Final = 2.0
"""A wait that was seen less than this ago is the one that has just timed out."""
_TRY_ANYWAY_S: Final = 10.0
"""A table whose blocker nobody saw is tried again after this."""
_PAUSE_S: Final = 5.0
"""The watching thread waits this long before it connects again."""
_SHOWN_QUERY: Final = 100
_CHAIN: Final = 3
"""A blocker may itself wait for another session. This many links of the chain are named."""
NOBODY: Final = "wait: the sink tries again every ten seconds; if it goes on, look at pg_locks in the replica"
_PREPARED: Final = (
    "SELECT gid, prepared, owner FROM pg_prepared_xacts;  -- in the replica; then COMMIT PREPARED or ROLLBACK PREPARED "
    "the gid that is in the way"
)
_OWN: Final = "the sink's own tables"
_ONE_SINK: Final = "the lock of the one sink"

_PLACE: Final = (
    "concat_ws('/', l.locktype, l.database, l.relation, l.page, l.tuple, l.virtualxid, l.transactionid, l.classid,"
    " l.objid, l.objsubid)"
)
"""Identifies what a lock is on, as one text."""

_WAITING: Final = f"""
SELECT l.pid, {_PLACE}, coalesce(n.nspname || '.' || c.relname, ''), l.mode,
       coalesce(extract(epoch FROM clock_timestamp() - l.waitstart), 0)::float8, pg_catalog.pg_blocking_pids(l.pid)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = l.relation
LEFT JOIN pg_catalog.pg_class c ON c.oid = coalesce(i.indrelid, l.relation)
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE NOT l.granted AND l.pid = ANY (%s)
"""
_DO_ANY_WAIT: Final = """
SELECT count(*) FROM unnest(%s::int[]) AS p (pid), LATERAL pg_catalog.pg_stat_get_activity(p.pid) a
WHERE a.wait_event_type = 'Lock'
"""
"""Asks cheaply, session by session. Reading ``pg_locks`` would briefly stop everybody who takes a lock."""
_SESSIONS: Final = """
SELECT a.pid, coalesce(a.usename::text, ''), coalesce(a.application_name, ''), coalesce(a.query, ''),
       coalesce(date_trunc('second', a.xact_start)::text, ''), pg_catalog.pg_blocking_pids(a.pid)
FROM pg_catalog.pg_stat_activity a WHERE a.pid = ANY (%s) ORDER BY a.xact_start, a.pid
"""
_STILL: Final = f"SELECT {_PLACE}, coalesce(l.pid, 0) FROM pg_catalog.pg_locks l WHERE {_PLACE} = ANY (%s)"
_LOCKED_TOO: Final = f"""
SELECT l.relation::int8, {_PLACE} FROM pg_catalog.pg_locks l
WHERE l.locktype = 'relation' AND l.granted AND coalesce(l.pid, 0) = ANY (%s) AND l.relation = ANY (%s::oid[])
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
"""Modes that keep rows out. https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-TABLES"""
_HOLDERS: Final = f"""
SELECT {_PLACE}, l.pid FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(%s, 0)
"""
"""Finds who holds an advisory lock. ``objsubid`` is 1 for a lock with one bigint key, whose halves are the two ids."""
_LOCKERS: Final = """
SELECT DISTINCT coalesce(l.pid, 0) FROM pg_catalog.pg_locks l
WHERE l.granted AND l.mode = 'AccessExclusiveLock' AND l.relation = ANY (%s::regclass[]::oid[])
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
"""

Session = psycopg.Connection[Any]

log = structlog.get_logger("cdc.sink")


class LockWait(NamedTuple):
    """A session that waits for a lock.

    Attributes:
        session: its pid.
        place: what the lock is on, as ``_PLACE`` spells it.
        relation: ``schema.table`` if the lock is on a table or its index; else empty.
        mode: the lock mode that it wants.
        seconds: how long it has waited.
        blockers: pids of the sessions in the way; 0 stands for a prepared transaction.
    """

    session: int
    place: str
    relation: str
    mode: str
    seconds: float
    blockers: tuple[int, ...]


class LockReport(NamedTuple):
    """Who is in the way, in words, and the command that ends the wait."""

    who: str
    remedy: str


@dataclass(slots=True)
class _Held:
    """Something that waits for a lock: a table that was left out, or this sink if another one has its name.

    Attributes:
        table: ``schema.table``, or ``_ONE_SINK``.
        place: what the lock is on; empty when nobody saw it.
        blockers: the pids that were in the way.
        told: the blockers in words.
        since: by ``time.monotonic``.
        is_free: the lock may be gone, so try again.
    """

    table: str
    place: str
    blockers: tuple[int, ...]
    told: LockReport
    since: float
    is_free: bool = False


@dataclass(slots=True)
class _Episode:
    """A wait that was logged."""

    since: float
    told_at: float


def waits_of(session: Session, pids: Collection[int]) -> list[LockWait]:
    """Returns which of these sessions wait for locks, and for whom."""
    rows = session.execute(_WAITING, [[*pids]]).fetchall()
    return [
        LockWait(pid, place, relation, mode, seconds, tuple(blockers))
        for pid, place, relation, mode, seconds, blockers in rows
    ]


def holders(session: Session, key: str) -> dict[int, str]:
    """Returns who holds the advisory lock that was made from ``key``: pids, and the lock's place."""
    return {pid: place for place, pid in session.execute(_HOLDERS, [key]).fetchall()}


def lockers(session: Session, tables: Collection[str]) -> list[int]:
    """Returns the pids that lock even readers out of these tables; 0 stands for a prepared transaction."""
    return [pid for (pid,) in session.execute(_LOCKERS, [[*tables]]).fetchall()]


def describe(session: Session, blockers: Collection[int]) -> LockReport:
    """Describes the blockers: pid, application, user, start of the transaction, and the query without its values."""
    who, ends = _chain(session, blockers, _CHAIN)
    hidden = "  -- GRANT pg_read_all_stats TO the sink's role shows their queries" if "a query hidden" in who else ""
    if 0 in blockers:
        return LockReport(who, _PREPARED)
    if not ends:
        return LockReport("a session that has ended since", NOBODY)
    commands = " ".join(f"SELECT pg_terminate_backend({pid});" for pid in ends)
    return LockReport(who, f"let it finish, or: {commands}{hidden}")


def shown_query(query: str) -> str:
    """Returns a query as it may be logged: cut off before its first literal, which may be a secret."""
    if query == "<insufficient privilege>":
        return "a query hidden from this role"
    text = " ".join(query.split())
    end = min((at for mark in ("'", "$", "\\") if (at := text.find(mark)) >= 0), default=len(text))
    shown = text[: min(end, _SHOWN_QUERY)]
    return shown if len(shown) == len(text) else f"{shown}…"


def _chain(session: Session, pids: Collection[int], depth: int) -> tuple[str, list[int]]:
    """Describes sessions and whom they wait for themselves. Also returns the pids at the end of the chain."""
    said, ends = ["a prepared transaction"] if 0 in pids else [], list[int]()
    for pid, user, application, query, since, blockers in session.execute(_SESSIONS, [[*pids]]).fetchall():
        details = [
            f"application {application!r}" if application else "",
            f"user {user}" if user else "",
            f"in a transaction since {since}" if since else "",
            shown_query(query),
        ]
        text = f"pid {pid} ({', '.join(filter(None, details))})"
        others = [each for each in blockers if each not in pids]
        if others and depth > 1:
            further, at_end = _chain(session, others, depth - 1)
            text, ends = f"{text}, which waits for {further}", [*ends, *at_end]
        else:
            ends.append(pid)
        said.append(text)
    return "; ".join(said), list(dict.fromkeys(ends))


class LockWaits:
    """What the sessions of one sink wait for. The writing thread and the watching thread share it.

    Args:
        on_wait: called by the watching thread: a table, and for how many seconds it has waited; 0 when that is over.
    """

    def __init__(self, on_wait: Callable[[str, float], None] = lambda _table, _seconds: None) -> None:
        self._on_wait = on_wait
        self._mutex = threading.Lock()
        self._sessions: list[Session] = []
        self._at: dict[int, str] = {}  # the table that a session writes to, by pid
        self._seen: dict[int, tuple[float, LockWait, LockReport]] = {}
        self._held: dict[str, _Held] = {}
        self._episodes: dict[str, _Episode] = {}

    def meet(self, session: Session) -> None:
        """Watches this session, too, from now on."""
        with self._mutex:  # a new list each time, because ``look`` reads it without the mutex
            self._sessions = [*(each for each in self._sessions if not each.closed), session]

    @contextlib.contextmanager
    def keeping_out(self, session: Session, topic: str, table: str) -> Iterator[None]:
        """Holds the table if a statement in this block runs into ``lock_timeout``.

        Raises:
            TableHeld: the open transaction has failed, and nothing of it is left.
        """
        pid = session.info.backend_pid
        self._at[pid] = table
        try:
            yield
        except LockNotAvailable as error:
            reach("sink.before_hold")
            self.hold(session, topic, table)
            raise TableHeld(topic) from error
        finally:
            self._at.pop(pid, None)

    def hold(self, session: Session, topic: str, table: str) -> None:
        """Leaves a table out until its lock is gone: a statement on it has just run into ``lock_timeout``."""
        with self._mutex:
            at, wait, told = self._seen.get(session.info.backend_pid, (0.0, None, LockReport("", "")))
            now = time.monotonic()
            if wait is None or now - at > _STILL_KNOWN_S:
                self._held[topic] = _Held(table, "", (), LockReport("somebody", NOBODY), now)
            else:
                self._held[topic] = _Held(table, wait.place, wait.blockers, told, at - wait.seconds)
            held = self._held[topic]
        log.warning(
            "a lock in the replica keeps rows out of a table: the sink leaves it out until the lock is gone",
            table=table,
            holder=held.told.who,
            remedy=held.told.remedy,
        )

    def hold_alike(self, session: Session, topic: str, oids: Mapping[int, tuple[str, str]]) -> None:
        """Leaves out at once every other table that the same blockers have locked.

        Without this, each of these tables would run into the timeout and cost a session, one after another.

        Args:
            session: has no failed transaction open.
            topic: the topic of a table that is held.
            oids: topic and ``schema.table`` by the table's oid.
        """
        held = self._held[topic]
        if not held.blockers:
            return
        for oid, place in session.execute(_LOCKED_TOO, [[*held.blockers], [*oids]]).fetchall():
            also, table = oids[oid]
            with self._mutex:
                self._held.setdefault(also, _Held(table, place, held.blockers, held.told, held.since))

    def begin(self) -> None:
        """Forgets tables that may be tried again: the session that begins now takes them up."""
        with self._mutex:
            self._held = {topic: held for topic, held in self._held.items() if not held.is_free or topic == _ONE_SINK}

    def held(self) -> dict[str, LockReport]:
        """Returns the tables that are left out, by topic, and who is in the way."""
        with self._mutex:
            return {topic: held.told for topic, held in self._held.items() if topic != _ONE_SINK}

    def may_return(self) -> bool:
        """Returns whether a table that was left out can be tried again."""
        with self._mutex:
            return any(held.is_free for topic, held in self._held.items() if topic != _ONE_SINK)

    def refused(self, session: Session, key: str) -> None:
        """Notes that another sink of this name holds the lock of the one sink.

        Args:
            session: to the replica.
            key: what the lock is made from.
        """
        if _ONE_SINK in self._held:
            return
        if found := holders(session, key):
            told = describe(session, found)
            with self._mutex:
                self._held[_ONE_SINK] = _Held(_ONE_SINK, next(iter(found.values())), (*found,), told, time.monotonic())

    def became_the_one(self) -> None:
        """Notes that this sink has the lock of the one sink."""
        with self._mutex:
            self._held.pop(_ONE_SINK, None)

    def look(self, session: Session) -> None:
        """Asks for whom the sink waits, and whether earlier blockers are gone. Logs what people should know."""
        # Before the query: between a timeout and ``hold``, a table is neither waited for nor held, and not free either
        at = set(self._at.values())
        pids = [each.info.backend_pid for each in self._sessions if not each.closed]
        waits: list[LockWait] = []
        if pids and session.execute(_DO_ANY_WAIT, [pids]).fetchone() != (0,):
            waits = waits_of(session, pids)
        told = {wait.session: describe(session, wait.blockers) for wait in waits if wait.blockers}
        with self._mutex:
            held = dict(self._held)
        places = [each.place for each in held.values() if each.place]
        there = set(session.execute(_STILL, [places]).fetchall()) if places else set()
        now = time.monotonic()
        with self._mutex:
            for wait in waits:
                if wait.session in told:
                    self._seen[wait.session] = now, wait, told[wait.session]
            for each in held.values():
                each.is_free |= (
                    not any((each.place, pid) in there for pid in each.blockers)
                    if each.place
                    else now - each.since > _TRY_ANYWAY_S
                )
        current = self._current(now, waits, told, [each for each in held.values() if not each.is_free])
        self._tell(now, current, at)

    def _current(
        self, now: float, waits: Sequence[LockWait], told: Mapping[int, LockReport], held: Sequence[_Held]
    ) -> dict[str, tuple[float, LockReport, str]]:
        """Returns the waits worth telling, by table: since when, who is in the way, and what that means."""
        current: dict[str, tuple[float, LockReport, str]] = {}
        for wait in waits:
            if wait.seconds >= _TOLD_AFTER_S and wait.session in told:
                table = self._at.get(wait.session) or wait.relation or _OWN
                where = f"every table waits, for {wait.mode} on {wait.relation or 'a row or transaction'}"
                current[table] = now - wait.seconds, told[wait.session], where
        for each in held:
            if now - each.since >= _TOLD_AFTER_S:
                others = "this sink waits" if each.table == _ONE_SINK else "this table is left out, the others go on"
                current[each.table] = each.since, each.told, others
        return current

    def _tell(self, now: float, current: Mapping[str, tuple[float, LockReport, str]], at: Collection[str]) -> None:
        """Logs a wait when it begins, once a minute while it lasts, and when it is over.

        Args:
            now: by ``time.monotonic``.
            current: the waits.
            at: tables that a session was writing to: whether their waits are over is not known yet.
        """
        for table in [*self._episodes]:
            if table not in current and table not in at:
                log.info(
                    "the lock in the replica is gone", table=table, waited_s=round(now - self._episodes[table].since, 1)
                )
                del self._episodes[table]
                self._on_wait(table, 0.0)
        for table, (since, holder, effect) in current.items():
            episode = self._episodes.get(table)
            if episode is None or now - episode.told_at >= TELL_AGAIN_S:
                self._episodes[table] = _Episode(since if episode is None else episode.since, now)
                log.warning(
                    "waiting for a lock in the replica",
                    table=table,
                    seconds=round(now - self._episodes[table].since, 1),
                    holder=holder.who,
                    effect=effect,
                    remedy=holder.remedy,
                )
            self._on_wait(table, now - self._episodes[table].since)


def watching(
    waits: LockWaits, connect: Callable[[], Session], on_failure: Callable[[], None]
) -> contextlib.AbstractContextManager[None]:
    """Runs the watching thread as long as the block lasts.

    Args:
        waits: the sessions to watch.
        connect: makes the thread's own connection.
        on_failure: called if a defect ends the thread; the end of the block then raises it.
    """
    return beside(lambda over: _watch(waits, connect, over), name="lock watch", on_failure=on_failure)


def _watch(waits: LockWaits, connect: Callable[[], Session], over: threading.Event) -> None:
    is_told = False
    while not over.is_set():
        try:
            with contextlib.closing(connect()) as session:
                session.set_autocommit(True)
                is_told = False
                while not over.wait(_LOOK_S):
                    waits.look(session)
        except (psycopg.Error, CdcError) as error:
            # No warning: if the server is away, the sink reports it itself. Otherwise only the blockers' names are lost
            if not is_told:
                log.info("cannot see who holds locks in the replica for now", error=" ".join(str(error).split()))
                is_told = True
            over.wait(_PAUSE_S)
