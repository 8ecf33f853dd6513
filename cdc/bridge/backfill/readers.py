"""The threads that read chunks, and hand them to the one thread that publishes.

The readers only wait for the server and collect lines. The publishing thread parses and encodes, in small portions
between two reads of the stream, so that the stream never waits for long. A bounded queue holds the readers back when
the publishing thread is busy, so memory does not depend on the size of a chunk, a row or a table.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import psycopg
import structlog

from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError, SourceLocked
from cdc.bridge.backfill.tasks import ChunkTask, KeysRead, KeysTask, News, Portion, ReadFailure, Task, Viewed, ViewTask
from cdc.bridge.capture.chunk import ChunkReader, flush_wal, open_chunk_reader, view_table
from cdc.bridge.capture.key_rows import read_keys
from cdc.bridge.capture.standby import Sight, has_replayed, is_standby_of, refuse_standby, sight
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.giving_up import give_up
from cdc.bridge.source.locks import naming_locks
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Column
from cdc.contract.formats.topic_keys import key_texts
from cdc.contract.snapshot import Snapshot


class ReadingServers:
    """The connections of one reading thread.

    Attributes:
        conn: reads tables.
        primary: the primary of the standby that ``conn`` reads from; None when ``conn`` reads from the source itself.
    """

    def __init__(self, conn: psycopg.Connection[Any], primary: psycopg.Connection[Any] | None) -> None:
        self.conn = conn
        self.primary = primary

    @classmethod
    def open(
        cls, source: Mapping[str, str], standby: Mapping[str, str] | None, application_name: str
    ) -> ReadingServers:
        """Connect to the servers.

        Raises:
            CdcError: a server refuses the connection, or is not the server that it should be.
        """
        conn = open_chunk_reader(standby or source, application_name=application_name, lock_timeout_s=LOOK_S)
        servers = cls(conn, None)
        try:
            if standby is None:
                refuse_standby(servers.conn)
            else:
                servers._look_at(connect(source, application_name=application_name))
        except CdcError:
            servers.close()
            raise
        return servers

    def _look_at(self, primary: psycopg.Connection[Any]) -> None:
        self.primary = primary
        refuse_standby(primary)
        if not is_standby_of(self.conn, primary):
            primary.close()
            self.primary = None

    @property
    def are_closed(self) -> bool:
        """Whether at least one connection is closed."""
        return any(each.closed for each in self.all())

    def close(self) -> None:
        """Close all connections."""
        for each in self.all():
            each.close()

    def all(self) -> tuple[psycopg.Connection[Any], ...]:
        """Returns all connections."""
        return (self.conn,) if self.primary is None else (self.conn, self.primary)


T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue that many threads put into. One thread takes from it, and never waits.

    Args:
        items: the most items that may wait.
        size: the most bytes that may wait, unless a single item is larger.
    """

    def __init__(self, items: int, size: int) -> None:
        self._max_items = items
        self._max_bytes = size
        self._items: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, item: T, size: int) -> bool:
        """Leave an item of ``size`` bytes once there is room for it; False if the mailbox is closed first."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._has_room(size))
            if self._is_closed:
                return False
            self._items.append((item, size))
            self._bytes += size
            return True

    def take(self) -> T | None:
        """Returns the first item; None when there is none."""
        with self._changed:
            if not self._items:
                return None
            item, size = self._items.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Refuse all further items, and wake up those who wait for room."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return not self._items or (len(self._items) < self._max_items and self._bytes + size <= self._max_bytes)


_PORTION_BYTES: Final = 1024 * 1024
_PORTIONS_PER_READER: Final = 8
_READY_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of rows that wait to be published, unless a single row is larger."""

_POLL_S: Final = 0.05
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0
_ASKS_BEFORE_FLUSH: Final = 4
"""How often to ask before the source is made to write out its WAL. An idle source may keep WAL to itself for a quarter
of a minute, and its standby cannot replay it before."""

_INVISIBLE: Final = "a published transaction to become visible (is a synchronous standby awaited?)"

log = structlog.get_logger("cdc.backfill")


class _Closed(Exception):
    """Ends a thread, because the readers were closed."""


class ChunkReaders:
    """Reads chunks in several threads.

    Args:
        source: the server that the stream comes from.
        standby: the standby to read from instead; None to read from the source.
        application_name: what ``pg_stat_activity`` shows.
        publication: the publication whose row filters and column lists apply.
        count: the number of threads.
    """

    def __init__(
        self,
        source: Mapping[str, str],
        standby: Mapping[str, str] | None,
        *,
        application_name: str,
        publication: str,
        count: int,
    ) -> None:
        self._source = source
        self._standby = standby
        self._application_name = application_name
        self._publication = publication
        self._stop = threading.Event()
        self._tasks: queue.Queue[Task] = queue.Queue()
        self._ready: Mailbox[News] = Mailbox(count * _PORTIONS_PER_READER, _READY_BYTES)
        self._servers: dict[str, ReadingServers] = {}
        self.count = count
        self.waits_for: str = ""
        """Why a reader cannot go on at the moment, for people to read."""
        self.locked: dict[str, str] = {}
        """Who locks a table that readers wait for, by table, for people to read."""
        self._tried: set[str] = set()
        self._workers = [Worker(partial(self._work, f"backfill {i}"), name=f"backfill {i}") for i in range(count)]
        for worker in self._workers:
            worker.start()

    def submit(self, task: Task) -> None:
        """Have a chunk read, or a table looked at. A chunk's portions come in order, mixed with other chunks'."""
        self._tasks.put(task)

    def take(self) -> News | None:
        """Returns the next portion; None if there is none at the moment. Raises the bug that ended a thread, if any."""
        for worker in self._workers:
            worker.check()
        return self._ready.take()

    def close(self) -> None:
        """End the threads. What they have read is dropped, and their statements on the server are cancelled."""
        self._stop.set()
        self._ready.close()
        give_up(self._are_over, lambda: [each for servers in list(self._servers.values()) for each in servers.all()])

    def _are_over(self, timeout_s: float) -> bool:
        return all(worker.ended_within(timeout_s) for worker in self._workers)

    def _work(self, name: str) -> None:
        task: Task | None = None
        pause_s = _FIRST_PAUSE_S
        with contextlib.suppress(_Closed):
            while not self._stop.is_set():
                try:
                    task = task or self._next()
                    if task is not None and _table(task).qualified_name in self._tried:
                        self._tasks.put(task)  # only one reader at a time waits for a table's lock
                        task = None
                        self._stop.wait(_POLL_S)
                    if task is not None:
                        self._do(self._open(name), task)
                        if _condition(task):
                            self._disconnect(name)  # the condition may have called set_config
                    task, pause_s = None, _FIRST_PAUSE_S
                except SourceLocked as error:
                    assert task is not None
                    self._tell_of_lock(_table(task), error)
                    if _condition(task):
                        self._disconnect(name)
                    self._tasks.put(task)  # at the end, so that other tables come first
                    task = None
                except CdcError as error:
                    assert task is not None
                    self._disconnect(name)
                    if self._stop.is_set():
                        break
                    if error.retryable:
                        log.warning(
                            "reading a table failed, and is tried again",
                            error=error.message,
                            pause_s=pause_s,
                            remedy=error.remedy,
                        )
                        self._stop.wait(pause_s)
                        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                        continue
                    self._put(ReadFailure(task, error))
                    task = None
        self._disconnect(name)

    def _next(self) -> Task | None:
        try:
            return self._tasks.get(timeout=_POLL_S)
        except queue.Empty:
            return None

    def _open(self, name: str) -> ReadingServers:
        """Returns this thread's connections."""
        servers = self._servers.get(name)
        if servers is None or servers.are_closed:
            self._disconnect(name)
            self._servers[name] = servers = ReadingServers.open(self._source, self._standby, self._application_name)
        return servers

    def _disconnect(self, name: str) -> None:
        if (servers := self._servers.pop(name, None)) is not None:
            servers.close()

    def _tell_of_lock(self, table: TableInfo, error: SourceLocked) -> None:
        if table.qualified_name not in self.locked and not self._stop.is_set():
            remedy = error.remedy
            log.warning(
                "a table is locked: it is read when the lock is gone",
                table=table.qualified_name,
                error=error.message,
                remedy=remedy,
            )
        self.locked[table.qualified_name] = error.message

    def _do(self, servers: ReadingServers, task: Task) -> None:
        table = _table(task)
        with naming_locks(servers.conn, [table.oid], "AccessShareLock"), self._trying(table.qualified_name):
            if isinstance(task, ViewTask):
                view = view_table(servers.conn, task.table, self._publication, task.where, self._sight(servers))
                self._put(Viewed(task, view))
            elif isinstance(task, KeysTask):
                self._look_up(servers, task)
            else:
                self._read(servers, task)
        self.locked.pop(table.qualified_name, None)

    @contextlib.contextmanager
    def _trying(self, table: str) -> Iterator[None]:
        """Keep other readers from a table that was locked when it was last tried."""
        if table in self.locked:
            self._tried.add(table)
        try:
            yield
        finally:
            self._tried.discard(table)

    def _read(self, servers: ReadingServers, task: ChunkTask) -> None:
        with ChunkReader(servers.conn, task.chunk, self._publication) as reader:
            view = reader.begin(self._sight(servers))
            while view is not None and not all(map(view.snapshot.sees, task.guard)):
                reader.end()  # an open transaction would block whoever wants to alter the table
                self._wait(_INVISIBLE)
                view = reader.begin(self._sight(servers))
            self.waits_for = ""
            if view is None or view.filenode != task.piece.leaf.filenode:
                self._put(Portion(task, view, [], True))
                return
            reader.copy()
            while not reader.is_at_end and not self._stop.is_set():
                lines = reader.rows(task.portion_rows, _PORTION_BYTES)
                self._put(Portion(task, view, lines, reader.is_at_end))

    def _look_up(self, servers: ReadingServers, task: KeysTask) -> None:
        def suffices(snapshot: Snapshot) -> bool:
            return all(map(snapshot.sees, task.guard))

        texts = partial(_texts, task.keys)
        found = None
        while found is None:
            found = read_keys(servers.conn, task.table, self._publication, texts, suffices, self._sight(servers))
            if found is None:
                self._wait(_INVISIBLE)
        self.waits_for = ""
        self._put(KeysRead(task, found))

    def _sight(self, servers: ReadingServers) -> Sight | None:
        """Returns what the standby certainly shows from now on; None for the source, whose snapshots say it all."""
        if servers.primary is None:
            return None
        seen, asked = sight(servers.primary), 1
        while not has_replayed(servers.conn, seen.lsn):
            self._wait("the standby to replay what the source shows")
            if asked == _ASKS_BEFORE_FLUSH:
                flush_wal(servers.primary)
            asked += 1
        return seen

    def _wait(self, reason: str) -> None:
        self.waits_for = reason
        if self._stop.wait(_POLL_S):
            raise _Closed

    def _put(self, news: News) -> None:
        if not self._ready.put(news, _size(news)):
            raise _Closed


def _size(news: News) -> int:
    match news:
        case Portion():
            return sum(map(len, news.lines))
        case KeysRead():
            return sum(len(cell or b"") for answer in news.found.answers for cell in answer.row or ())
        case _:
            return 0


def _table(task: Task) -> TableInfo:
    return task.chunk.table if isinstance(task, ChunkTask) else task.table


def _condition(task: Task) -> str | None:
    match task:
        case ChunkTask():
            return task.chunk.where
        case ViewTask():
            return task.where
        case KeysTask():
            return None


def _texts(keys: Sequence[bytes], columns: Sequence[Column]) -> list[tuple[bytes, ...] | None]:
    return [key_texts(columns, key) for key in keys]
