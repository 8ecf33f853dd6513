"""Reads rows again whose unchanged TOAST values the stream left out, in a thread and on a connection of its own.

A re-read may wait for a lock, for a commit to become visible, or for a slow disk. It waits here, while the streaming
thread sends signs of life, commits what is ready, and can be stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any, Final, NamedTuple

import psycopg
import structlog

from cdc.base.daemon.threads import Threads
from cdc.base.errors import SourceAltered, SourceBusy, SourceLocked, SourceUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.capture.reread import Reread, RereadRow, reread
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.held import MAX_HELD, MAX_HELD_BYTES
from cdc.bridge.order.needs import Answer, Filled, Rows, Unfilled
from cdc.bridge.source.catalog import exists
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.giving_up import give_up
from cdc.bridge.source.locks import naming_locks
from cdc.bridge.source.row_filter import filter_of
from cdc.bridge.source.slot import wal_end
from cdc.contract.change import Row
from cdc.contract.record import TableSchema
from cdc.contract.snapshot import Snapshot

_FIRST_PORTION: Final = 16
"""How many rows to read at first, while their size is unknown."""
_BUSY_S: Final = 0.1
_INVISIBLE_S: Final = 0.005
"""The pause until a commit is looked for again. It is visible soon, unless a synchronous standby is awaited."""

log = structlog.get_logger("cdc.bridge")


class Reading(NamedTuple):
    """What the table contained.

    Attributes:
        answers: one for each of the first rows that were asked for.
        end: the end of the source's WAL after the reading, if a row had changed its key and is gone: the change that
            removed it lies before that. Otherwise None, and always on a standby.
    """

    answers: list[Answer]
    end: LSN | None


class Rereader:
    """Reads rows again, one question at a time.

    Args:
        connection: libpq's connection keywords.
        publication: the publication whose row filters apply.
        application_name: what ``pg_stat_activity`` shows.
    """

    def __init__(self, connection: Mapping[str, str], publication: str, *, application_name: str) -> None:
        self._connection = connection
        self._publication = publication
        self._application_name = application_name
        self._stop = threading.Event()
        self._thread = Threads(1, "reread")
        self._sql: psycopg.Connection[Any] | None = None
        self._asked: Rows | None = None
        self._answer: Future[Reading] | None = None
        self._portion = _FIRST_PORTION
        self._told: set[str] = set()
        self._exchanged: dict[tuple[int, tuple[int, ...]], Snapshot] = {}

    def read(self, need: Rows, recorded: TableSchema | None, timeout_s: float) -> Reading | None:
        """Returns the answer to a question, or None when there is none yet. The first call with a question asks it.

        Args:
            need: which rows.
            recorded: the last definition that the topic was written with, which has the columns' numbers.
            timeout_s: how long to wait for the answer.

        Raises:
            SourceUnavailable: the connection broke.
            SourceRefused: the role may not read the table.
        """
        if self._asked is not need or self._answer is None:
            self._asked, self._answer = need, self._thread.submit(self._read, need, recorded, self._portion)
        try:
            reading = self._answer.result(timeout_s)
        except TimeoutError:
            return None
        self._asked = self._answer = None
        return reading

    def close(self) -> None:
        """Cancel what is under way, and end the thread."""
        self._stop.set()
        self._thread.shutdown()
        give_up(self._is_idle, lambda: [] if self._sql is None else [self._sql])
        if self._sql is not None:
            self._sql.close()

    def _is_idle(self, timeout_s: float) -> bool:
        return self._answer is None or not wait([self._answer], timeout_s).not_done

    def _read(self, need: Rows, recorded: TableSchema | None, portion: int) -> Reading:
        rows, xids = need.rows[:portion], need.xids[:portion]
        columns = _Columns(need.table, rows)
        if self._sql is None:
            self._sql = connect(self._connection, application_name=self._application_name, lock_timeout_s=LOOK_S)
        try:
            now = self._find(self._sql, columns, xids)
        except SourceAltered:
            is_there = exists(self._sql, need.table.relation.relation_id)
            return Reading([Unfilled.UNREADABLE if is_there else Unfilled.GONE] * len(rows), None)
        found = now.rows
        self._learn(len(rows), sum(len(cell or b"") for row in found.values() for cell in row.values))
        since = self._since(need.table, columns, recorded, now)
        answers = [
            columns.answer(row, found.get(key), xid) if since is None or not since.sees(xid) else Unfilled.UNREADABLE
            for row, key, xid in zip(rows, columns.keys, xids, strict=True)
        ]
        is_moved = any(
            answer is Unfilled.GONE and len(keys) > 1 for answer, keys in zip(answers, need.keys, strict=False)
        )
        return Reading(answers, wal_end(self._sql) if is_moved else None)

    def _since(
        self, table: TableEncoder, columns: _Columns, recorded: TableSchema | None, now: Reread
    ) -> Snapshot | None:
        """Returns the first snapshot at which the columns are certainly those that the stream means; None for always.

        A column that was dropped and added again keeps its name, its type and maybe its place, and a default fills it
        without a new version of any row. Only its number tells, and the stream does not send numbers. To exchange a
        column, PostgreSQL waits for everybody who uses the table. So a transaction that this snapshot does not see
        committed later, and means the new column. Snapshots are kept in memory only: a later one, after a restart,
        doubts more rows, never fewer.
        """
        known = dict.fromkeys(columns.looked_at, 0)
        if recorded is not None and recorded.fingerprint == table.fingerprint:
            numbers = {each.name: each.number for each in recorded.columns}  # by name: some may be hidden
            known = {place: numbers[table.relation.columns[place].name] for place in columns.looked_at}
        # Without a number on record, trust a name only if no column of the table was ever dropped or renamed
        if all(now.numbers[place] == number if number else all(now.numbers) for place, number in known.items()):
            return None
        return self._exchanged.setdefault((table.relation.relation_id, now.numbers), now.snapshot)

    def _find(self, sql: psycopg.Connection[Any], columns: _Columns, xids: tuple[int, ...]) -> Reread:
        """Returns the rows as soon as they can be read by a snapshot that sees all these transactions."""
        table = columns.table
        while True:
            pause_s = _INVISIBLE_S
            try:
                with naming_locks(sql, [table.relation.relation_id], "AccessShareLock"):
                    rule = filter_of(sql, self._publication, table.relation.relation_id)
                    condition = None if rule is None else rule.condition
                    found = reread(sql, table.relation, table.key_columns, columns.names, columns.keys, condition)
                self._unlocked(table.relation.qualified_name)
                if all(map(found.snapshot.sees, xids)):
                    return found
            except SourceLocked as error:
                self._locked(table.relation.qualified_name, error)
            except SourceBusy:
                pause_s = _BUSY_S
            if self._stop.wait(pause_s):
                raise SourceUnavailable(
                    "stopped while rows were read again", remedy="start the bridge again: it goes on where it was"
                )

    def _locked(self, table: str, error: SourceLocked) -> None:
        """Warn once that the stream stands still, maybe for hours, and name who holds the lock."""
        if table not in self._told:
            self._told.add(table)
            what = "the stream waits: a row must be read again, and its table is locked"
            log.warning(what, table=table, error=error.message, remedy=error.remedy)

    def _unlocked(self, table: str) -> None:
        if table in self._told:
            self._told.discard(table)
            log.info("the stream goes on: the table can be read again", table=table)

    def _learn(self, rows: int, size: int) -> None:
        """Choose how many rows to ask for next, so that they fit into memory, by the size of the last ones."""
        wanted = rows * MAX_HELD_BYTES // max(size, 1) // 2
        self._portion = max(1, min(wanted, self._portion * 4, MAX_HELD))


class _Columns:
    """Which columns to read again, of which rows.

    Args:
        table: the table that the rows belong to.
        rows: the rows as the stream sent them.
    """

    def __init__(self, table: TableEncoder, rows: tuple[Row, ...]) -> None:
        names = [column.name for column in table.relation.columns]
        key_places = [names.index(name) for name in table.key_columns]
        self.table = table
        self.places = sorted({place for row in rows for place in table.missing(row)})
        self.names = [names[place] for place in self.places]
        self.looked_at = (*self.places, *key_places)
        self.keys = [tuple(cell for place in key_places if isinstance(cell := row[place], bytes)) for row in rows]

    def answer(self, row: Row, current: RereadRow | None, xid: int) -> Answer:
        """Returns what became of a row, given what the table has under its key."""
        if current is None:
            return Unfilled.GONE
        whole = self.table.fill_at(row, dict(zip(self.places, current.values, strict=True)))
        return Filled(whole, current.xmin != xid & 0xFFFFFFFF)
