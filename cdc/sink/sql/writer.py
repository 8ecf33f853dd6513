"""The replica through SQLAlchemy: rows, offsets and cut in one transaction of one session.

``write`` may be called several times before ``commit``, so a source transaction that is larger than memory is still one
replica transaction. When the database rejects a batch, that transaction is rolled back. Then parts of the batch are
applied again and again, each time more or fewer, and rolled back, until the record at fault is found: not every
database has savepoints. The table is stopped, with the record's key, partition and offset, and the others go on from
what is stored.

If ``sink.quarantine`` names the table, all records at fault are found, and put aside: the rows of the transaction are
applied once more, with tombstones in place of these records. If some of its rows are not in memory any more, the next
session reads them again from what is stored, and is told which records are at fault. It is only told that for speed. If
the process ends before, the database refuses them once more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import sqlalchemy as sa

from cdc.base.crashpoints import reach
from cdc.base.errors import ReplicaUnavailable
from cdc.base.lsn import LSN
from cdc.contract.ports import (
    BeginAnew,
    Beginning,
    CutStanding,
    Partition,
    ReplicaTable,
    Restored,
    StoredRecord,
    TableRejected,
)
from cdc.contract.record import Progress, SourceIdentity, TableSchema
from cdc.sink.rejections import RecordRejected, render_all_but
from cdc.sink.replica import ReplicaNaming
from cdc.sink.sql.batch import RowBatch
from cdc.sink.sql.control import cut, microseconds, partition_offset, read_state, seconds
from cdc.sink.sql.dialect import Blame, SqlDialect, blamed, first_line, replica_errors
from cdc.sink.sql.quarantine import SqlQuarantine, refused_of
from cdc.sink.sql.registry import SqlRegistry

RecordPlace: TypeAlias = tuple[str, int, int]
"""A record's topic, by its id, its partition and its offset."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Which rows the tables of a replica may lack.

    Attributes:
        budgets: how many rows of a table may be in quarantine, by ``namespace.table``.
        found: why the database refuses records that the next session reads again. A session takes this away at its
            beginning, and forgets it at its first cut: by then, somebody may have corrected the table.
    """

    budgets: Mapping[str, int]
    found: dict[RecordPlace, str] = field(default_factory=dict)


class SqlReplica:
    """One session of the sink of this name. After an error, the sink opens another one.

    Args:
        dialect: of the replica, which has the sink's own tables.
        name: the sink's name.
        naming: names replica tables.
        tolerance: which rows they may lack; the same for all sessions of a process.
        stopped: topics that this process has stopped already.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
        ReplicaRefused: it cannot be opened.
    """

    def __init__(
        self,
        dialect: SqlDialect,
        name: str,
        naming: ReplicaNaming,
        tolerance: Tolerance,
        stopped: Collection[str] = (),
    ) -> None:
        self._dialect = dialect
        self._name = name
        self._naming = naming
        self._initially_stopped = stopped
        self._sole = dialect.sole_writer(name)
        with replica_errors(dialect, "opening it"):
            self._connection = dialect.connect()
        self._upsert_cut = dialect.upsert(cut, ["name"])
        self._upsert_offsets = dialect.upsert(partition_offset, ["name", "topic", "partition"])
        self._offsets: dict[Partition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._written: Counter[str] = Counter()
        self._is_open = False
        self._tolerance = tolerance
        self._known_refused = dict(tolerance.found)
        tolerance.found.clear()

    def lock(self) -> bool:
        """Becomes the only sink of this name until ``close``. Returns False when another session is.

        Raises:
            ReplicaRefused: the lock's file cannot be written.
        """
        with replica_errors(self._dialect, "taking the lock of the one sink"):
            return self._sole.take(self._connection)

    def close(self) -> None:
        """Closes the session and so rolls back its open transaction. Only then may another sink begin."""
        with suppress(sa.exc.SQLAlchemyError):
            self._connection.close()
        self._sole.release()

    def restore(self) -> Restored:
        """Returns the recorded cut and the next offsets, which are empty at the first start."""
        with replica_errors(self._dialect, "reading the recorded cut"):
            connection, dialect, name = self._connection, self._dialect, self._name
            self._quarantine = SqlQuarantine(connection, dialect, name, self._tolerance.budgets)
            self._quarantine.read()
            self._registry = SqlRegistry(
                connection, dialect, name, self._naming, self._quarantine, self._initially_stopped
            )
            self._registry.drop_strays()
            row = self._connection.execute(sa.select(cut).where(cut.c.name == self._name)).first()
            rows = self._connection.execute(
                sa.select(partition_offset).where(partition_offset.c.name == self._name)
            ).all()
            self._connection.commit()
        self._offsets = {(each.topic, each.partition): each.next_offset for each in rows}
        self._topic_ids = {each.topic: each.topic_id for each in rows}
        progress, caught_up_at = None, 0.0
        if row is not None:
            source = SourceIdentity(row.system_identifier, row.timeline, row.database_oid)
            progress = Progress(LSN.parse(row.applied_lsn), None, row.commit_ts, source)
            caught_up_at = seconds(row.caught_up_at)
        return Restored(
            progress, dict(self._offsets), dict(self._topic_ids), caught_up_at, dict(self._registry.read_since)
        )

    def learn(self, schemas: Sequence[TableSchema]) -> frozenset[str]:
        """Creates, widens or empties replica tables, as part of the open transaction if there is one.

        Returns:
            The topics that begin anew: the rows of their tables are deleted.

        Raises:
            BeginAnew: this cannot be part of the open transaction, so nothing is left of that. Another session learns
                these definitions before it writes.
            TableRejected: the database refuses to create or widen a table.
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        with replica_errors(self._dialect, "creating replica tables"):
            if not self._registry.knows(schemas):
                self._leave_transaction()
            emptied = self._registry.learn(schemas)
            self._settle()
        return emptied

    def begin(
        self,
        topic: str,
        topic_id: str,
        *,
        ends: Sequence[int],  # noqa: ARG002 - who asks for progress asks the topics
        resumes: bool,
        why_anew: str,
        is_asked: bool,
        now: float,
    ) -> Beginning:
        """Takes up a topic and decides whether its table is rebuilt, as part of the open transaction if there is one.

        Raises:
            BeginAnew: as for ``learn``.
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        with replica_errors(self._dialect, "taking up a table"):
            self._leave_transaction()
            beginning = self._registry.begin(topic, resumes=resumes, why_anew=why_anew, is_asked=is_asked, now=now)
            if beginning == "anew":
                self._forget_offsets(topic)
            self._topic_ids[topic] = topic_id
            self._settle()
        return beginning

    def know(self, topic: str, topic_id: str) -> None:
        """Notes the id of a topic that no table mirrors. If the id is new, the topic's stored offsets are dropped."""
        if self._topic_ids.get(topic) != topic_id:
            self._forget_offsets(topic)
        self._topic_ids[topic] = topic_id

    def leave_cut(self, topic: str) -> None:
        """Writes down that the topic is not part of the next cut, as part of the open transaction if there is one.

        Raises:
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        with replica_errors(self._dialect, "leaving a table out of the cut"):
            self._registry.leave_cut(topic)
            self._settle()

    def stop_topic(self, topic: str, reason: str) -> None:
        """Records that a table takes no rows, and why, as part of the open transaction if there is one."""
        with replica_errors(self._dialect, "recording why a table is stopped"):
            self._registry.stop(topic, reason)
            self._settle()

    def tables(self) -> Mapping[str, ReplicaTable]:
        """Returns every known replica table by topic."""
        return self._registry.tables

    def active(self) -> Collection[str]:
        """Returns the topics whose tables take rows."""
        return self._registry.active.keys()

    def may_return(self) -> bool:
        """Returns False: no lock of another session keeps a single table out."""
        return False

    def meet_source(self, source: SourceIdentity) -> None:
        """Accepts any source: the source is PostgreSQL, and so is not this database."""

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> RowBatch:
        """Returns the last record of each key as the driver's values. Uses no connection.

        Raises:
            RecordRejected: a record cannot be written as a row of the table.
        """
        rows, budget = self._registry.active[topic], self._quarantine.budget(self._registry.source_table(topic))
        if not budget:
            return rows.prepare(topic, records)
        batch, refused = render_all_but(lambda left: rows.prepare(topic, left), records, budget)
        batch = replace(batch, refused=refused)
        if not self._known_refused:
            return batch
        reasons = map(self._known_refused.get, map(self._place, batch.records))
        known = {at: reason for at, reason in enumerate(reasons) if reason is not None and at >= len(batch.deleted)}
        return rows.put_aside(batch, known)

    def write(self, batches: Sequence[RowBatch]) -> None:
        """Applies rows in the open replica transaction.

        Raises:
            TableRejected: the database rejects rows; nothing of the open transaction is left.
            BeginAnew: the same, and the next session puts them aside.
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        reach("sink.before_apply")
        was_open, self._is_open = self._is_open, True
        with replica_errors(self._dialect, "applying rows"):
            wanted, taken = [*batches], 0
            while taken < len(wanted):
                try:
                    self._take(wanted[taken])
                    taken += 1
                except sa.exc.DBAPIError as error:
                    if blamed(self._dialect, error).blame is not Blame.ROWS:
                        raise
                    self._connection.rollback()
                    wanted[taken] = self._narrowed(wanted[taken], error)
                    for refused in wanted[taken].refused:
                        assert refused.record is not None
                        self._known_refused[self._place(refused.record)] = refused.reason
                    if was_open:  # rows that were rolled back are not in memory any more
                        self._tolerance.found.update(self._known_refused)
                        raise BeginAnew from error
                    self._quarantine.read()
                    taken = 0
        for batch in wanted:
            self._written[batch.topic] += len(batch)

    def commit(self, progress: Progress, offsets: Mapping[Partition, int], standing: CutStanding) -> None:
        """Records the cut and the offsets to go on from, and commits.

        Raises:
            TableRejected: rows that a rebuild did not meet cannot be deleted.
            ReplicaUnavailable: nothing of the open transaction is left, or its outcome is unknown.
        """
        # A cut that no table takes part in speaks of none, so it gets no LSN
        source = progress.source
        has_parts = len(standing.outside) < len(self._registry.active)
        is_known = standing.is_true and (has_parts or not standing.outside)
        moved = {each: offset for each, offset in offsets.items() if self._offsets.get(each) != offset}
        row = (
            self._name,
            str(progress.lsn) if is_known else None,
            str(progress.lsn),
            progress.commit_ts,
            source.system_identifier,
            source.timeline,
            source.database_oid,
            microseconds(time.time()),
            microseconds(standing.caught_up_at),
        )
        with replica_errors(self._dialect, "recording a cut"):
            self._dialect.load(self._connection, self._upsert_cut, [row])
            if moved:
                rows = [(self._name, *each, offset, self._topic_ids[each[0]]) for each, offset in moved.items()]
                self._dialect.load(self._connection, self._upsert_offsets, rows)
            lacking = {*standing.lacking, *self._quarantine.topics}
            self._registry.applied(self._written, standing._replace(lacking=lacking))
            reach("sink.before_replica_commit")
            self._end()
            reach("sink.before_keys_dropped")
            self._registry.drop_spent()
            self._connection.commit()
        self._offsets.update(moved)
        self._known_refused.clear()
        reach("sink.after_replica_commit")

    def stop_table(self, topic: str, reason: str, record: StoredRecord | None) -> None:
        """Rolls back the open transaction. Records that a table is stopped, why, and by which record if it was one.

        Raises:
            ReplicaUnavailable: the replica cannot be reached.
        """
        with replica_errors(self._dialect, "recording why a table is stopped"):
            self._connection.rollback()
            self._registry.stop_after_rollback(topic, reason, record)
            self._end()

    def _take(self, batch: RowBatch) -> None:
        """Applies a batch and what it means for the quarantine."""
        if batch.refused or batch.topic in self._quarantine.topics:
            rows, table = self._registry.active[batch.topic], self._registry.source_table(batch.topic)
            self._quarantine.leave(batch.topic, map(rows.key_in_json, batch.records))
            for refused in batch.refused:
                assert refused.record is not None
                self._quarantine.enter(table, rows.key_in_json(refused.record), refused)
        self._apply(batch)

    def _apply(self, batch: RowBatch) -> None:
        self._registry.active[batch.topic].apply(self._connection, batch)
        if (met := self._registry.met.get(batch.topic)) is not None:
            met.remember(batch.upserted)

    def _narrowed(self, batch: RowBatch, error: sa.exc.DBAPIError) -> RowBatch:
        """Returns a batch that was rolled back, with the records at fault put aside.

        Raises:
            RecordRejected: a record at fault cannot be put aside.
            TableRejected: none is at fault alone.
            ReplicaUnavailable: the table was altered.
        """
        rows = self._registry.active[batch.topic]
        stored = self._dialect.stored(self._connection, rows.name)
        self._connection.rollback()
        columns = {each.name.lower() for each in stored.columns} if stored is not None else set()
        if any(each.name.lower() not in columns for each in rows.table.columns):
            raise ReplicaUnavailable(
                f"replica table {rows.name} was dropped or altered under the running sink: {first_line(error)}",
                remedy="wait: the sink checks its tables again; if this repeats, find out who alters them",
            ) from error
        budget = self._quarantine.budget(self._registry.source_table(batch.topic))
        found = refused_of(batch, budget, self._refusal)
        if not found:
            raise TableRejected(
                batch.topic,
                f"{first_line(error)} (only together with other rows of the same transaction)",
                remedy="correct the constraint or trigger of the replica table that fails, then restart the sink",
            ) from error
        # The row that a tombstone deletes would pass for the newest
        fatal = next((each for each in found if not budget or each < len(batch.deleted)), None)
        if fatal is not None:
            raise RecordRejected(batch.records[fatal], found[fatal]) from error
        return rows.put_aside(batch, found)

    def _place(self, record: StoredRecord) -> RecordPlace:
        return self._topic_ids[record.topic], record.partition, record.offset

    def _refusal(self, batch: RowBatch) -> str | None:
        """Applies a batch and rolls it back. Returns why the database rejects rows; None if it does not."""
        try:
            self._apply(batch)
        except sa.exc.DBAPIError as error:
            if blamed(self._dialect, error).blame is not Blame.ROWS:
                raise
            return first_line(error)
        finally:
            self._connection.rollback()
        return None

    def _forget_offsets(self, topic: str) -> None:
        self._offsets = {each: offset for each, offset in self._offsets.items() if each[0] != topic}

    def _leave_transaction(self) -> None:
        """Sees that tables may be changed now. If there are rows that the change would commit, the session is over."""
        if self._is_open and self._dialect.commits_ddl:
            self._connection.rollback()
            raise BeginAnew
        self._sole.check(self._connection)

    def _settle(self) -> None:
        """Commits, unless rows are waiting for their cut."""
        if not self._is_open:
            self._end()

    def _end(self) -> None:
        self._sole.check(self._connection)
        self._connection.commit()
        self._is_open = False
        self._written.clear()
        if (told := self._dialect.told) is not None:
            told.write(self._name, read_state(self._connection, self._name))
            self._connection.commit()
