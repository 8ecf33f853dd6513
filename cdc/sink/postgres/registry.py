"""The tables that this sink mirrors: their definitions so far, their replica tables, and their recorded states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
import sqlalchemy as sa
import structlog
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from cdc.base.errors import ConfigError, with_remedy
from cdc.contract.ports import Beginning, CutStanding, ReplicaTable, StoredRecord
from cdc.contract.record import TableSchema
from cdc.contract.table_states import IN_CUT, TableEvent, TableState, at_cut
from cdc.sink.definitions import former_definitions
from cdc.sink.placement import Placement, nowhere
from cdc.sink.postgres.batch import TableStatements
from cdc.sink.postgres.control import cut, mirrored_table, partition_offset
from cdc.sink.postgres.errors import CutRejected, RowsForbidden, first_line, is_retryable
from cdc.sink.postgres.fresh import FreshTables, is_plain
from cdc.sink.postgres.grants import lacking
from cdc.sink.postgres.locks import WAIT_FOR_ROWS, WAIT_FOR_SHAPE, WAIT_LONG, LockReport, LockWaits
from cdc.sink.postgres.rebuild import SeenKeys, has_rows, seen_table
from cdc.sink.postgres.rekey import delete_all
from cdc.sink.postgres.session import psycopg_of
from cdc.sink.postgres.table_facts import KnownTables
from cdc.sink.postgres.tables import Established, establish, quoted_name
from cdc.sink.recorded_tables import RecordedTables
from cdc.sink.rejections import TableRefused
from cdc.sink.replica import ReplicaName, ReplicaNaming
from cdc.sink.taking_up import INTERRUPTED, NO_CULPRIT, FoundTable, culprit, foreign_rows, is_stripped

_REFERRED: Final = """
SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_constraint k
JOIN pg_catalog.pg_class r ON r.oid = k.conrelid JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
JOIN pg_catalog.pg_class c ON c.oid = k.confrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE (rn.nspname, r.relname, k.conname) = (%s, %s, %s)
"""
"""The table that a foreign key refers to."""

log = structlog.get_logger("cdc.sink")


class TableRegistry:
    """Keeps ``cdc.mirrored_table`` for one sink.

    Args:
        connection: a connection to the replica; the caller begins and commits.
        name: the name of the sink.
        naming: decides where source tables go.
        waits: the tables that are left out because of another session's lock.
        stopped: topics that this process has stopped. Their tables stay alone until a restart.

    Attributes:
        fresh: tables that were empty when this session began to fill them.
        is_source: whether the replica is the source's own database. A table that is mirrored into itself would feed
            itself for ever.
        read_since: ``cut.caught_up_at`` by topic, for tables outside the cut.
    """

    def __init__(
        self,
        connection: sa.Connection,
        name: str,
        naming: ReplicaNaming,
        waits: LockWaits,
        stopped: Collection[str] = (),
    ) -> None:
        self._connection = connection
        self._waits = waits
        waits.begin()
        self._session = psycopg_of(connection)
        self._name = name
        self._placement = Placement(connection, mirrored_table, name, naming)
        self._stopped = set(stopped)
        self._emptied: set[str] = set()
        self._created: set[str] = set()
        self._stripped: set[str] = set()
        self._seen: dict[str, SeenKeys] = {}
        self._schemas: dict[str, list[TableSchema]] = {}
        self._names: dict[str, ReplicaName] = {}
        self._statements: dict[str, TableStatements] = {}
        self._staged = 0
        self.fresh = FreshTables()
        self.is_source = False
        self._records = RecordedTables(connection, mirrored_table, name)
        rows, self._tables = self._records.rows, self._records.tables
        self._known = KnownTables(self._session, {row.topic: (row.table_oid, row.table_file) for row in rows})
        self._established = {row.topic: row.fingerprint for row in rows}
        self._recorded = frozenset(self._established)
        self._oids = {row.table_oid: (row.topic, row.replica_table) for row in rows if row.table_oid is not None}
        self._held = {row.topic for row in rows if row.held_by is not None}
        self._seen_tables = {row.topic: row.seen_table for row in rows if row.seen_table is not None}
        self.read_since = {row.topic: row.read_since.timestamp() for row in rows if row.read_since is not None}

    @property
    def tables(self) -> Mapping[str, ReplicaTable]:
        """Every known replica table by topic."""
        return self._tables

    @property
    def statements(self) -> Mapping[str, TableStatements]:
        """The statements that write rows, by topic, of each table that takes rows."""
        return self._statements

    def learn(self, schemas: Iterable[TableSchema]) -> frozenset[str]:
        """Takes definitions in the order in which they were used, and creates or widens replica tables for them.

        Returns:
            Topics that begin anew: the rows of their tables are gone.

        Raises:
            ConfigError: a table would be mirrored into itself.
        """
        changed: dict[str, None] = {}
        for schema in schemas:
            changed |= dict.fromkeys(self._placement.learn(schema) & {schema.topic, *self._schemas})
            known = self._schemas.setdefault(schema.topic, [])
            if known and known[-1] == schema:
                continue  # published again, as each of the bridge's sessions does
            if schema in known:
                known.remove(schema)
            known.append(schema)
            changed[schema.topic] = None
        for topic in self._waits.held():
            self._waits.hold_alike(self._session, topic, self._oids)
        for topic in sorted(changed, key=self._is_retired, reverse=True):
            self._establish(topic, self._schemas[topic])
        emptied, self._emptied = frozenset(self._emptied), set()
        return emptied

    def source_table(self, topic: str) -> str:
        """Returns the ``namespace.table`` in the source that a topic has the rows of."""
        return self._schemas[topic][-1].qualified_name

    def has_own_ways(self, topic: str) -> bool:
        """Whether triggers or rules of the topic's table may keep rows out, or in."""
        return self._known.has_own_ways(topic)

    @property
    def seen(self) -> Mapping[str, SeenKeys]:
        """The keys that a rebuild has met so far, by topic."""
        return self._seen

    def begin(self, topic: str, *, resumes: bool, why_anew: str, is_asked: bool, now: float) -> Beginning:
        """Begins to fill the table of a topic. Arguments are those of ``ReplicaWriter.begin``."""
        statements = self._statements.get(topic)
        if statements is None:
            return "stopped"
        holds_rows = has_rows(self._session, statements.target)
        found = FoundTable(
            resumes=resumes,
            is_created=topic in self._created,
            is_stripped=topic in self._stripped,
            is_recorded=topic in self._recorded,
            is_rebuilt=topic in self._seen_tables,
            holds_rows=holds_rows,
            reason=self._tables[topic].reason,
            why_empty=self._known.why_empty(topic),
        )
        if found.has_foreign_rows and not is_asked:
            self.stop(topic, str(foreign_rows(self._names[topic], self._schemas[topic][-1])))
            return "stopped"
        why_anew = found.why_anew(why_anew, is_asked=is_asked)
        if not holds_rows:
            self._take_for_fresh(topic)
        if values := self._known.to_record(topic):  # with rows in it, it is what somebody made of the former
            self._records.update(topic, **values)
        if why_anew or not resumes:
            self._begin_at_zero(topic, why_anew, holds_rows, now)
            return "anew"
        if topic in self._seen_tables:
            self._seen[topic] = SeenKeys(self._session, self._seen_tables[topic], statements)
        self._resume(topic)
        if self._tables[topic].state in IN_CUT:
            return "joined"
        if topic not in self.read_since:
            self.leave_cut(topic)
        return "outside"

    def _resume(self, topic: str) -> None:
        """Goes on where the last session stopped. A rebuild goes on, too: the keys that it has met are on record."""
        if topic in self._seen_tables and self._tables[topic].state != TableState.REBUILDING:
            self._records.move(topic, TableEvent.REBUILD_RESUMED, reason=INTERRUPTED)
        else:
            self._records.move(topic, TableEvent.RESUMED)

    def leave_cut(self, topic: str) -> None:
        """Takes the topic out of the cut, and records until when it was known to be read to its end."""
        self._records.update(topic, read_since=self._caught_up_at())

    def _begin_at_zero(self, topic: str, why: str, holds_rows: bool, now: float) -> None:
        """Reads from the first offset. Existing rows stay until it is known that the topic does not have them."""
        seen_name = seen_table(self._name, topic)
        seen = SeenKeys(self._session, seen_name, self._statements[topic])
        self._seen.pop(topic, None)
        if holds_rows:
            seen.begin()
            self._seen[topic], self._seen_tables[topic] = seen, seen_name
        else:
            seen.drop()
            self._seen_tables.pop(topic, None)
        if why:
            log.warning(
                "rebuilding a table from its topic",
                table=self._tables[topic].name,
                reason=why,
                remedy="wait: the topic holds all of its rows; `cdc status` says how far",
            )
        self._connection.execute(
            sa.delete(partition_offset).where(partition_offset.c.name == self._name, partition_offset.c.topic == topic)
        )
        self._records.move(
            topic,
            TableEvent.READ_AGAIN if why else TableEvent.READ,
            reason=why or None,
            read_since=datetime.fromtimestamp(now, UTC),
            seen_table=seen_name if holds_rows else None,
        )

    def leave_out(self, topic: str, told: LockReport) -> None:
        """Leaves a table out of rows and cuts until another session's lock is gone."""
        self._statements.pop(topic, None)
        self._seen.pop(topic, None)
        self._held.add(topic)
        self._records.move(
            topic,
            TableEvent.LEFT_OUT,
            held_by=with_remedy(told.who, told.remedy),
            held_since=sa.func.coalesce(mirrored_table.c.held_since, sa.func.clock_timestamp()),
            read_since=sa.func.coalesce(mirrored_table.c.read_since, self._caught_up_at()),
        )

    def stop(self, topic: str, reason: str, record: StoredRecord | None = None) -> None:
        """Records why a table takes no more rows, and the record that caused it, if one did."""
        self._stopped.add(topic)
        self._statements.pop(topic, None)
        self._seen.pop(topic, None)
        self._records.move(
            topic,
            TableEvent.REFUSED,
            reason=reason,
            **(NO_CULPRIT if record is None else culprit(record)),
            read_since=sa.func.coalesce(mirrored_table.c.read_since, self._caught_up_at()),
        )

    def forbidden(self, topic: str, cause: psycopg.Error) -> RowsForbidden | None:
        """Returns why the role may not write a table, with the grants that it lacks; None if it lacks none."""
        grants = self._missing_grants(self._names[topic]) if isinstance(cause, InsufficientPrivilege) else ""
        return RowsForbidden(topic, first_line(cause), grants) if grants else None

    def refuse_changed(self, topic: str) -> None:
        """Checks that a table which rejects rows is still the one that was taken up.

        Raises:
            ReplicaUnavailable: it was dropped, replaced or altered; the next session decides what that means.
        """
        self._known.refuse_changed([topic], [topic])

    def applied(self, counts: Mapping[str, int], standing: CutStanding) -> None:
        """Records a cut: how many rows each table took, and the state of each table that takes rows."""
        self._known.refuse_changed(counts, self._statements)
        for topic in standing.joining:
            self._join(topic)
        for topic in self._statements:
            events = at_cut(topic, standing)
            if rows := counts.get(topic, 0):
                self._records.move(topic, *events, rows_applied=self._tables[topic].rows_applied + rows)
            else:
                self._records.move(topic, *events)

    def blamed(self, error: psycopg.Error) -> str | None:
        """Finds the topic whose rows break a constraint: the referring table's, or else the referenced table's.

        Returns:
            A topic whose table takes rows; None when there is none that the server names.
        """
        blamed = error.diag.schema_name, error.diag.table_name
        referred = self._session.execute(_REFERRED, [*blamed, error.diag.constraint_name]).fetchall()
        topics = {tuple(self._names[topic]): topic for topic in self._statements}
        return next((topics[each] for each in (blamed, *referred) if each in topics), None)

    def _join(self, topic: str) -> None:
        """Ends a rebuild: the topic was read to its end, so rows whose keys were not met are not in it."""
        seen, gone = self._seen.pop(topic, None), 0
        try:
            if seen is not None:
                with self._waits.keeping_out(self._session, topic, self._tables[topic].name):
                    self._session.execute(WAIT_FOR_ROWS)
                    gone = seen.finish()
                    self._session.execute(WAIT_LONG)
        except psycopg.Error as error:
            if is_retryable(error):
                raise
            raise CutRejected(
                topic, f"rows that its topic does not have cannot be deleted: {first_line(error)}"
            ) from error
        if self._tables[topic].state == TableState.REBUILDING:
            log.info("table is rebuilt", table=self._tables[topic].name, rows_deleted=gone)
        self._seen_tables.pop(topic, None)
        self.read_since.pop(topic, None)
        self._records.update(topic, seen_table=None, read_since=None)

    def _caught_up_at(self) -> sa.ScalarSelect[Any]:
        return sa.select(cut.c.caught_up_at).where(cut.c.name == self._name).scalar_subquery()

    def _establish(self, topic: str, schemas: Sequence[TableSchema]) -> None:
        newest, known = schemas[-1], self._tables.get(topic)
        if known is None and self._is_retired(topic):
            return  # nothing of it was ever here
        try:
            name = self._placement.place(newest, known and known.name)
        except TableRefused as error:
            if known is None:
                self._records.enter(topic, nowhere(topic), newest.fingerprint)
            self.stop(topic, str(error))
            return
        self._names[topic] = name
        if self.is_source and (newest.namespace, newest.name) == name:
            raise ConfigError(
                f"sink.dsn is the source database, and table {name} would be mirrored into itself",
                remedy="set sink.schema or sink.prefix, and keep the replica tables out of source.tables",
            )
        self._records.enter(topic, str(name), newest.fingerprint)
        if topic in self._stopped:
            return
        if (told := self._waits.held().get(topic)) is not None:
            self.leave_out(topic, told)
            return
        try:
            with self._connection.begin_nested():
                self._session.execute(WAIT_FOR_SHAPE)
                is_new = not self._known.is_there(name)
                columns, added, is_emptied = self._fitted(topic, name, schemas)
                self._known.take_up(topic, name)
                self._compare(topic, schemas, added, is_new=is_new)
                if (outgrown := self._statements.get(topic)) is not None:
                    self._session.execute(outgrown.drop)
                self._staged += 1
                statements = TableStatements(self._staged, name, schemas, columns)
                for statement in statements.prepare:
                    self._session.execute(statement)
                self._session.execute(WAIT_LONG)
        except TableRefused as error:
            self.stop(topic, str(error))
        except (sa.exc.DBAPIError, psycopg.Error) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            if isinstance(cause, LockNotAvailable):
                self._held_up(topic, str(name))
                return
            if not isinstance(cause, psycopg.Error) or is_retryable(cause):
                raise
            self.stop(topic, str(self._impossible(name, cause)))
        else:
            # Not before: what is locked or stopped now is emptied when it is established
            self._records.update(topic, fingerprint=newest.fingerprint)
            self._established[topic] = newest.fingerprint
            self._statements[topic] = statements
            if topic in self._held:
                self._held.discard(topic)
                self._records.update(topic, held_by=None, held_since=None)
            if topic in self._seen:
                self._seen[topic] = SeenKeys(self._session, seen_table(self._name, topic), statements)
            if is_emptied:
                self._begin_anew(topic)

    def _fitted(self, topic: str, name: ReplicaName, schemas: Sequence[TableSchema]) -> Established:
        """Creates or widens the table. Deletes its rows if they came under a definition with another key."""
        made = establish(self._connection, name, schemas)
        if made.is_emptied or self._established.get(topic) not in former_definitions(schemas):
            return made
        delete_all(self._connection, quoted_name(name))
        return made._replace(is_emptied=True)

    def _held_up(self, topic: str, table: str) -> None:
        """Leaves out a table that another session has locked; the savepoint was rolled back."""
        self._waits.hold(self._session, topic, table)
        self._waits.hold_alike(self._session, topic, self._oids)
        self.leave_out(topic, self._waits.held()[topic])

    def _compare(self, topic: str, schemas: Sequence[TableSchema], added: Collection[str], *, is_new: bool) -> None:
        """Notes if the table or a column was gone: what was added now must be new in the source, too."""
        if is_new:
            self._created.add(topic)
        if is_stripped(self._established.get(topic, ""), schemas, added):
            self._stripped.add(topic)

    def _impossible(self, name: ReplicaName, cause: psycopg.Error) -> TableRefused:
        """Returns why a replica table cannot be created or widened, with the grant if a right is missing."""
        grants = self._missing_grants(name) if isinstance(cause, InsufficientPrivilege) else ""
        return TableRefused(
            f"replica table {name} cannot be created or widened: {first_line(cause)}",
            remedy=f"{grants} -- then restart the sink"
            if grants
            else "change or drop the replica table so that it can be made, then restart the sink",
        )

    def _missing_grants(self, name: ReplicaName) -> str:
        return " ".join(lack.remedy for lack in lacking(self._session, [name.schema], [name]))

    def _begin_anew(self, topic: str) -> None:
        """Notes that the table's rows were deleted, before the cut that says so."""
        self._emptied.add(topic)
        self._records.move(topic, TableEvent.EMPTIED)
        if topic in self._seen_tables:  # with columns of the former key
            SeenKeys(self._session, self._seen_tables[topic], self._statements[topic]).begin()
        self._take_for_fresh(topic)

    def _take_for_fresh(self, topic: str) -> None:
        """Notes that the table is empty, so that rows can be copied into it without looking for older ones."""
        if self._statements[topic].take_new is not None and is_plain(self._session, self._names[topic]):
            self.fresh.add(topic)

    def _is_retired(self, topic: str) -> bool:
        """Whether the source table is published to another topic now."""
        return self._placement.successor(self._schemas[topic][-1]) is not None
