"""The replica through SQLAlchemy: rows, offsets and cut in one transaction of one session.

``write`` may be called several times before ``commit``, so a source transaction that is larger than memory is still one
replica transaction. When the database rejects a batch, that transaction is rolled back. Then the first records of the
batch are applied again and again, each time more or fewer, and rolled back, until the record at fault is found: not
every database has savepoints, and the session ends anyway. The table is stopped, with the record's key, partition and
offset, and the others go on from what is stored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

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
from cdc.sink.rejections import RecordRejected
from cdc.sink.replica import ReplicaNaming
from cdc.sink.sql.batch import RowBatch
from cdc.sink.sql.control import cut, microseconds, partition_offset, read_state, seconds
from cdc.sink.sql.dialect import Blame, SqlDialect, blamed, first_line, replica_errors
from cdc.sink.sql.registry import SqlRegistry


class SqlReplica:
    """One session of the sink of this name. After an error, the sink opens another one.

    Args:
        dialect: of the replica, which has the sink's own tables.
        name: the sink's name.
        naming: names replica tables.
        stopped: topics that this process has stopped already.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
        ReplicaRefused: it cannot be opened.
    """

    def __init__(self, dialect: SqlDialect, name: str, naming: ReplicaNaming, stopped: Collection[str] = ()) -> None:
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
            self._registry = SqlRegistry(
                self._connection, self._dialect, self._name, self._naming, self._initially_stopped
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
        return self._registry.active[topic].prepare(topic, records)

    def write(self, batches: Sequence[RowBatch]) -> None:
        """Applies rows in the open replica transaction.

        Raises:
            TableRejected: the database rejects rows; nothing of the open transaction is left.
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        reach("sink.before_apply")
        self._is_open = True
        with replica_errors(self._dialect, "applying rows"):
            for batch in batches:
                try:
                    self._apply(batch)
                except sa.exc.DBAPIError as error:
                    if blamed(self._dialect, error).blame is not Blame.ROWS:
                        raise
                    self._connection.rollback()
                    raise self._rejected(batch, error) from error
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
            self._registry.applied(self._written, standing)
            reach("sink.before_replica_commit")
            self._end()
            reach("sink.before_keys_dropped")
            self._registry.drop_spent()
            self._connection.commit()
        self._offsets.update(moved)
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

    def _apply(self, batch: RowBatch) -> None:
        self._registry.active[batch.topic].apply(self._connection, batch)
        if (met := self._registry.met.get(batch.topic)) is not None:
            met.remember(batch.upserted)

    def _rejected(self, batch: RowBatch, error: sa.exc.DBAPIError) -> TableRejected | ReplicaUnavailable:
        """Finds the record at fault. The transaction in which the batch failed was rolled back."""
        name = self._registry.active[batch.topic].name
        stored = self._dialect.stored(self._connection, name)
        self._connection.rollback()
        columns = {each.name.lower() for each in stored.columns} if stored is not None else set()
        if any(each.name.lower() not in columns for each in self._registry.active[batch.topic].table.columns):
            return ReplicaUnavailable(
                f"replica table {name} was dropped or altered under the running sink: {first_line(error)}",
                remedy="wait: the sink checks its tables again; if this repeats, find out who alters them",
            )
        low, high, reason = 0, len(batch), first_line(error)
        while high - low > 1:
            middle = (low + high) // 2
            if (told := self._refusal(batch.first(middle))) is None:
                low = middle
            else:
                high, reason = middle, told
        if (told := self._refusal(batch.first(high))) is None:
            return TableRejected(
                batch.topic,
                f"{first_line(error)} (only together with other rows of the same transaction)",
                remedy="correct the constraint or trigger of the replica table that fails, then restart the sink",
            )
        return RecordRejected(batch.records[high - 1], reason)

    def _refusal(self, batch: RowBatch) -> str | None:
        """Applies rows and rolls them back. Returns why they are rejected, or None if they are not."""
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
