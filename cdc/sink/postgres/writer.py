"""The replica on PostgreSQL. COPY stages rows; delete and upsert apply them; offsets and cut share their transaction.

A table that was empty takes new rows by COPY alone (``fresh.py``), until such a COPY fails.

Theory of operation. One session does everything. ``write`` may be called several times before ``commit``, so a source
transaction that is larger than memory is still one replica transaction. When the database rejects a batch, the sink
rolls it back to a savepoint and halves it until it has found the record at fault. The table is then stopped, with the
record's key, partition and offset; or, if ``sink.quarantine`` names it, the record is put aside (``quarantine.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

import psycopg
import sqlalchemy as sa
import structlog
from psycopg import sql
from psycopg.errors import TriggeredActionException

from cdc.base.crashpoints import reach
from cdc.base.lsn import LSN
from cdc.contract.ports import Beginning, CutStanding, Partition, ReplicaTable, Restored, StoredRecord
from cdc.contract.record import Progress, SourceIdentity, TableSchema
from cdc.sink.postgres.batch import RenderedBatch, TableStatements
from cdc.sink.postgres.control import cut, partition_offset
from cdc.sink.postgres.errors import CutRejected, first_line, is_retryable, replica_errors
from cdc.sink.postgres.locks import WAIT_FOR_ROWS, WAIT_LONG, LockWaits
from cdc.sink.postgres.quarantine import ReplicaQuarantine
from cdc.sink.postgres.registry import TableRegistry
from cdc.sink.postgres.session import is_database, lock_key, psycopg_of, try_lock
from cdc.sink.rejections import RecordRejected, as_tombstone
from cdc.sink.replica import ReplicaNaming

_RECORD_CUT: Final = """
    INSERT INTO cdc.cut (name, lsn, applied_lsn, commit_ts, system_identifier, timeline, database_oid, applied_at,
                         caught_up_at)
    VALUES (%s, %s::pg_lsn, %s::pg_lsn, %s, %s, %s, %s, clock_timestamp(), to_timestamp(%s))
    ON CONFLICT (name) DO UPDATE SET
        (lsn, applied_lsn, commit_ts, system_identifier, timeline, database_oid, applied_at, caught_up_at) =
        (excluded.lsn, excluded.applied_lsn, excluded.commit_ts, excluded.system_identifier, excluded.timeline,
         excluded.database_oid, excluded.applied_at, excluded.caught_up_at)
"""
_RECORD_OFFSETS: Final = """
    INSERT INTO cdc.partition_offset (name, topic, partition, next_offset, topic_id)
    SELECT %s, * FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::text[])
    ON CONFLICT (name, topic, partition) DO UPDATE SET
        (next_offset, topic_id) = (excluded.next_offset, excluded.topic_id)
"""

_MOST_DEAD: Final = 10_000
"""TRUNCATE writes the catalog. A transaction that does so a thousand times, to narrow down rows that fail, walks
through all former versions of its entries with each statement. Below so many rows, reading dead ones costs less."""

log = structlog.get_logger("cdc.sink")


class PostgresReplica:
    """One session of the sink of this name. After an error, the sink opens another one.

    Args:
        engine: to the replica, whose ``cdc`` tables have the current version.
        name: the sink's name.
        naming: names replica tables.
        waits: which tables are left out because of somebody's lock.
        stopped: topics that this process has stopped already.
        budgets: how many rows of a table may be in quarantine, by ``namespace.table``.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
    """

    def __init__(
        self,
        engine: sa.Engine,
        name: str,
        naming: ReplicaNaming,
        waits: LockWaits,
        stopped: Collection[str],
        budgets: Mapping[str, int],
    ) -> None:
        self._budgets = budgets
        self._name = name
        self._waits = waits
        self._naming = naming
        self._initially_stopped = stopped
        self._connection = engine.connect()
        self._session = psycopg_of(self._connection)
        self._offsets: dict[Partition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._written: Counter[str] = Counter()
        self._staged: dict[str, int] = {}
        """How many rows the staging tables of a topic hold in this transaction, the dead ones included."""
        self._is_open = self._waits_briefly = False

    def lock(self) -> bool:
        """Becomes the only sink of this name until ``close``. Returns False when another session is.

        Raises:
            ReplicaUnavailable: the replica cannot be reached.
        """
        with replica_errors("taking the lock of the one sink"):
            locked = try_lock(self._connection, self._name)
            if locked:
                self._waits.became_the_one()
            else:
                self._waits.refused(self._session, lock_key(self._name))
            self._connection.commit()
            self._session.commit()
            return locked

    def restore(self) -> Restored:
        """Returns the recorded cut and the next offsets, which are empty at the first start."""
        with replica_errors("reading the recorded cut"):
            self._registry = TableRegistry(
                self._connection, self._name, self._naming, self._waits, self._initially_stopped
            )
            self._quarantine = ReplicaQuarantine(self._session, self._name, self._budgets)
            row = self._connection.execute(sa.select(cut).where(cut.c.name == self._name)).first()
            rows = self._connection.execute(
                sa.select(partition_offset).where(partition_offset.c.name == self._name)
            ).all()
            self._offsets = {(each.topic, each.partition): each.next_offset for each in rows}
            self._topic_ids = {each.topic: each.topic_id for each in rows}
            self._connection.commit()
        progress, caught_up_at = None, 0.0
        if row is not None:
            source = SourceIdentity(row.system_identifier, row.timeline, row.database_oid)
            progress = Progress(LSN(row.applied_lsn), None, row.commit_ts, source)
            caught_up_at = row.caught_up_at.timestamp()
        return Restored(
            progress, dict(self._offsets), dict(self._topic_ids), caught_up_at, dict(self._registry.read_since)
        )

    def learn(self, schemas: Sequence[TableSchema]) -> frozenset[str]:
        """Creates, widens or empties replica tables, as part of the open transaction if there is one.

        Returns:
            The topics that begin anew: the rows of their tables are deleted.

        Raises:
            ConfigError: two topics would share a replica table, or a table would be mirrored into itself.
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        with replica_errors("creating replica tables"):
            emptied = self._registry.learn(schemas)
            for topic in emptied:
                self._quarantine.clear(topic)
            if self._is_open:
                self._session.execute(WAIT_LONG)  # the registry may have left another lock_timeout in place
                self._waits_briefly = False
            else:
                self._connection.commit()
                self._session.commit()
                if self._waits.held():
                    reach("sink.after_hold")
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
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        with replica_errors("taking up a table"), self._keeping_out(topic):
            beginning = self._registry.begin(topic, resumes=resumes, why_anew=why_anew, is_asked=is_asked, now=now)
            if beginning == "anew":
                self._offsets = {each: offset for each, offset in self._offsets.items() if each[0] != topic}
                self._quarantine.clear(topic)
            self._topic_ids[topic] = topic_id
            if not self._is_open:
                self._end()
        return beginning

    def know(self, topic: str, topic_id: str) -> None:
        """Notes the id of a topic that no table mirrors. If the id is new, the topic's stored offsets are dropped."""
        if self._topic_ids.get(topic) != topic_id:
            self._offsets = {each: offset for each, offset in self._offsets.items() if each[0] != topic}
        self._topic_ids[topic] = topic_id

    def leave_cut(self, topic: str) -> None:
        """Write down that the topic is not part of the next cut. Inside an open transaction, that is part of it.

        Raises:
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        with replica_errors("leaving a table out of the cut"):
            self._registry.leave_cut(topic)

    def stop_topic(self, topic: str, reason: str) -> None:
        """Records that a table takes no rows, and why, as part of the open transaction if there is one."""
        with replica_errors("recording why a table is stopped"):
            self._registry.stop(topic, reason)
            if not self._is_open:
                self._connection.commit()

    def tables(self) -> Mapping[str, ReplicaTable]:
        """Returns every known replica table by topic."""
        return self._registry.tables

    def active(self) -> Collection[str]:
        """Returns the topics whose tables take rows."""
        return self._registry.statements.keys()

    def may_return(self) -> bool:
        """Returns whether another session would take up a table that a lock keeps out now."""
        is_free = self._waits.may_return()
        if is_free:
            reach("sink.before_return")
        return is_free

    def meet_source(self, source: SourceIdentity) -> None:
        """Notes the source, so that no table of it is mirrored into itself. Call it before ``learn``."""
        with replica_errors("asking the replica who it is"):
            self._registry.is_source = is_database(self._connection, source)
            self._connection.commit()

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> RenderedBatch:
        """Renders the last record of each key as COPY text. Uses no connection.

        Raises:
            RecordRejected: a record cannot be written as a row of the table.
        """
        statements, fresh = self._registry.statements[topic], self._registry.fresh
        if budget := self._quarantine.budget(self._registry.source_table(topic)):
            return statements.render_most(topic, records, fresh, budget)
        return statements.render(topic, records, fresh)

    def write(self, batches: Sequence[RenderedBatch]) -> None:
        """Applies rows in the open replica transaction.

        Raises:
            RecordRejected: the database rejects a record.
            RowsForbidden: the sink's role may not write to the table.
            TableHeld: somebody's lock keeps rows out of the table; nothing of the open transaction is left.
            ReplicaUnavailable: nothing of the open transaction is left.
        """
        reach("sink.before_apply")
        self._is_open = True
        with replica_errors("applying rows"):
            for batch in batches:
                with self._keeping_out(batch.topic):
                    self._apply(batch)
                self._written[batch.topic] += len(batch)

    def commit(self, progress: Progress, offsets: Mapping[Partition, int], standing: CutStanding) -> None:
        """Records the cut and the offsets to go on from, and commits.

        Raises:
            CutRejected: rows break a constraint together that each of them passed alone.
            ReplicaUnavailable: nothing of the open transaction is left, or its outcome is unknown.
        """
        # A cut that no table takes part in speaks of none, so it gets no LSN
        source = progress.source
        has_parts = len(standing.outside) < len(self._registry.statements)
        is_known = standing.is_true and (has_parts or not standing.outside)
        moved = {each: offset for each, offset in offsets.items() if self._offsets.get(each) != offset}
        with replica_errors("recording a cut", remedy="correct the constraint or trigger in the replica that fails"):
            execute = self._session.execute
            if self._waits_briefly:
                execute(WAIT_LONG)
            execute(
                _RECORD_CUT,
                [
                    self._name,
                    str(progress.lsn) if is_known else None,
                    str(progress.lsn),
                    progress.commit_ts,
                    source.system_identifier,
                    source.timeline,
                    source.database_oid,
                    standing.caught_up_at,
                ],
            )
            if moved:
                topics, numbers = zip(*moved, strict=True)
                ids = [self._topic_ids[topic] for topic in topics]
                execute(_RECORD_OFFSETS, [self._name, [*topics], [*numbers], [*moved.values()], ids])
            lacking = {*standing.lacking, *self._quarantine.topics}
            self._registry.applied(self._written, standing._replace(lacking=lacking))
            self._check_deferred()
            reach("sink.before_replica_commit")
            self._end()
        self._offsets.update(moved)
        reach("sink.after_replica_commit")

    def stop_table(self, topic: str, reason: str, record: StoredRecord | None) -> None:
        """Rolls back the open transaction. Records that a table is stopped, why, and by which record if it was one.

        Raises:
            ReplicaUnavailable: the replica cannot be reached.
        """
        with replica_errors("recording why a table is stopped"):
            self._connection.rollback()
            self._session.rollback()
            self._registry.stop(topic, reason, record)
            self._end()

    def close(self) -> None:
        """Closes the session and so rolls back its open transaction."""
        with suppress(sa.exc.SQLAlchemyError, psycopg.Error):
            self._connection.close()

    def _check_deferred(self) -> None:
        """Checks deferred constraints now: after a failed COMMIT, it would be too late to ask whose rows break them."""
        try:
            with self._connection.begin_nested():
                self._session.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not is_retryable(error) and (topic := self._registry.blamed(error)) is not None:
                raise CutRejected(topic, first_line(error)) from error
            raise

    def _keeping_out(self, topic: str) -> AbstractContextManager[None]:
        """Gives the statements of the block a short ``lock_timeout``, and holds the table when it runs out."""
        if not self._waits_briefly:
            self._session.execute(WAIT_FOR_ROWS)
            self._waits_briefly = True
        return self._waits.keeping_out(self._session, topic, self._registry.tables[topic].name)

    def _end(self) -> None:
        self._connection.commit()
        self._session.commit()  # SQLAlchemy commits only what it began; psycopg's statements may have begun it
        self._is_open = self._waits_briefly = False
        self._written.clear()
        self._staged.clear()

    def _apply(self, batch: RenderedBatch) -> None:
        statements, fresh = self._registry.statements[batch.topic], self._registry.fresh
        if batch.topic in self._quarantine.topics:
            self._quarantine.leave(batch.topic, map(statements.key_in_json, batch.records))
        for refused in batch.refused:
            self._put_aside(statements, refused)
        # Not during a rebuild: it takes the keys that it has seen from the staging table
        if batch.new and batch.topic in fresh and batch.topic not in self._registry.seen:
            try:
                self._try(statements, batch, is_straight=True)
                return
            except psycopg.Error as error:
                if is_retryable(error):
                    raise
                fresh.discard(batch.topic)
                name = self._registry.tables[batch.topic].name
                log.info("rows are staged from now on: a direct COPY failed", table=name, reason=first_line(error))
        try:
            self._try(statements, batch)
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            self._registry.refuse_changed(batch.topic)
            if (forbidden := self._registry.forbidden(batch.topic, error)) is not None:
                raise forbidden from error
            self._narrow(statements, batch.topic, batch.records, error)

    def _try(self, statements: TableStatements, batch: RenderedBatch, *, is_straight: bool = False) -> None:
        """Applies one batch, or nothing of it. Stages all rows, unless new ones are to go straight into the table."""
        staged = batch.upserted if is_straight else [*batch.upserted, *batch.new]
        before = self._staged.get(batch.topic)
        is_truncated = (before or 0) > _MOST_DEAD
        if batch.deleted or staged or before is not None:
            self._staged[batch.topic] = (before or 0) + len(batch)  # even if all of it fails
        with self._connection.begin_nested(), self._session.cursor() as cursor:
            if before is not None:  # the tables empty themselves only at the commit
                for statement in statements.truncate if is_truncated else statements.clear:
                    cursor.execute(statement)
            if batch.deleted:
                _copy(cursor, statements.stage_keys, batch.deleted)
                cursor.execute(statements.delete)
                if (
                    self._registry.has_own_ways(batch.topic)
                    and cursor.execute(statements.undeleted).fetchone() is not None
                ):
                    raise TriggeredActionException("a trigger or rule of the replica table keeps a deleted row")
            taken = 0
            if staged:
                _copy(cursor, statements.stage_rows, staged)
                if statements.sift is not None:
                    taken = cursor.execute(statements.sift).rowcount
                for statement in statements.take_rows:
                    cursor.execute(statement)
                taken += cursor.rowcount
                if (seen := self._registry.seen.get(batch.topic)) is not None:
                    cursor.execute(seen.remember)
            if is_straight and statements.take_new is not None:
                taken += _copy(cursor, statements.take_new, batch.new)
            if not statements.is_uncounted and taken != len(batch) - batch.tombstones:
                raise TriggeredActionException("a trigger of the replica table keeps a row out")
        if is_truncated:
            self._staged[batch.topic] = len(batch)

    def _narrow(
        self, statements: TableStatements, topic: str, records: Sequence[StoredRecord], error: psycopg.Error
    ) -> None:
        """Applies both halves of rows that failed together. A record that fails alone is put aside.

        Raises:
            RecordRejected: a record that cannot be put aside fails after all records before it were applied.
        """
        if len(records) == 1:
            self._refuse(statements, RecordRejected(records[0], first_line(error)))
            return
        middle = len(records) // 2
        for half in (records[:middle], records[middle:]):
            try:
                self._try(statements, statements.render_again(topic, half))
            except psycopg.Error as narrowed:
                if is_retryable(narrowed):
                    raise
                self._narrow(statements, topic, half, narrowed)

    def _refuse(self, statements: TableStatements, refused: RecordRejected) -> None:
        """Puts a record aside that the database rejects, and deletes the row that its key had.

        Raises:
            RecordRejected: the record is a tombstone, or the table has no quarantine, or a full one; or the row that
                its key had cannot be deleted.
        """
        record = refused.record
        if record is None or record.value is None:
            raise refused
        self._put_aside(statements, refused)
        try:
            gone = as_tombstone(record._replace(key=statements.key_in_json(record)))
            self._try(statements, statements.render_again(refused.topic, [gone]))
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            raise RecordRejected(record, first_line(error)) from error

    def _put_aside(self, statements: TableStatements, refused: RecordRejected) -> None:
        table = self._registry.source_table(refused.topic)
        if refused.record is None or not self._quarantine.budget(table):
            raise refused
        self._quarantine.enter(table, statements.key_in_json(refused.record), refused)


def _copy(cursor: psycopg.Cursor[Any], statement: sql.Composed, blocks: Sequence[bytes]) -> int:
    """Copies blocks of COPY text. Returns how many rows the table took."""
    with cursor.copy(statement) as copy:
        for block in blocks:
            copy.write(block)
    return cursor.rowcount
