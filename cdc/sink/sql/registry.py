"""The tables that this sink mirrors: their definitions so far, their replica tables, and their recorded states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import sqlalchemy as sa
import structlog

from cdc.base.crashpoints import reach
from cdc.base.errors import ReplicaUnavailable
from cdc.contract.ports import Beginning, CutStanding, ReplicaTable, StoredRecord, TableRejected
from cdc.contract.record import TableSchema
from cdc.contract.table_states import IN_CUT, TableEvent, TableState, at_cut
from cdc.sink.definitions import former_definitions
from cdc.sink.placement import Placement, nowhere
from cdc.sink.recorded_tables import RecordedTables
from cdc.sink.rejections import TableRefused
from cdc.sink.replica import ReplicaName, ReplicaNaming
from cdc.sink.sql.batch import Row, RowsTable
from cdc.sink.sql.control import cut, microseconds, mirrored_table, partition_offset, seconds
from cdc.sink.sql.dialect import Blame, SqlDialect, blamed, first_line
from cdc.sink.sql.quarantine import SqlQuarantine
from cdc.sink.sql.tables import TablePlan, plan_table, table_of
from cdc.sink.taking_up import (
    DROPPED,
    INTERRUPTED,
    NO_CULPRIT,
    STRIPPED,
    FoundTable,
    culprit,
    foreign_rows,
    is_stripped,
)

_KEYS: Final = "cdc_seen_"
"""Begins the name of each table of keys."""

log = structlog.get_logger("cdc.sink")


class MetKeys:
    """The keys that a rebuild has met, in a table of their own: in the end, rows with other keys are deleted.

    The theory of operation is that of ``cdc.sink.postgres.rebuild``.

    Args:
        connection: to the replica; the caller begins and commits.
        dialect: of the replica.
        name: of the table of keys.
        rows: the replica table.
    """

    def __init__(self, connection: sa.Connection, dialect: SqlDialect, name: str, rows: RowsTable) -> None:
        self._connection = connection
        self._dialect = dialect
        self._rows = rows
        self._keys = table_of(ReplicaName("", name), rows.key_columns, rows.key, **dialect.table_options)
        self._remember = dialect.upsert(self._keys, rows.key)

    def begin(self) -> None:
        """Creates the table of keys, empty."""
        self.drop()
        self._connection.execute(sa.schema.CreateTable(self._keys))

    def remember(self, rows: Sequence[Row]) -> None:
        """Notes the keys of rows."""
        if rows:
            self._dialect.load(self._connection, self._remember, self._rows.keys_of(rows))

    def finish(self) -> int:
        """Deletes the rows whose keys were not met, and leaves it to ``drop`` to end. Returns how many they were."""
        table = self._rows.table
        same = [self._keys.c[each] == table.c[each] for each in self._rows.key]
        is_met = sa.exists(sa.select(sa.literal(1)).select_from(self._keys).where(*same)).correlate(table)
        return self._connection.execute(sa.delete(table).where(~is_met)).rowcount

    def drop(self) -> None:
        """Drops the table of keys."""
        self._connection.execute(sa.schema.DropTable(self._keys, if_exists=True))


class SqlRegistry:
    """Keeps ``cdc_mirrored_table`` for one sink.

    Args:
        connection: a connection to the replica; the caller begins and commits.
        dialect: of the replica.
        name: the name of the sink.
        naming: decides where source tables go.
        quarantine: its entries of a table end when the table is filled anew.
        stopped: topics that this process has stopped. Their tables stay alone until a restart.

    Attributes:
        read_since: ``cut.caught_up_at`` by topic, for tables outside the cut.
    """

    def __init__(
        self,
        connection: sa.Connection,
        dialect: SqlDialect,
        name: str,
        naming: ReplicaNaming,
        quarantine: SqlQuarantine,
        stopped: Collection[str] = (),
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self._name = name
        self._placement = Placement(connection, mirrored_table, name, naming)
        self._quarantine = quarantine
        self._stopped = set(stopped)
        self._emptied: set[str] = set()
        self._created: set[str] = set()
        self._stripped: set[str] = set()
        self._met: dict[str, MetKeys] = {}
        self._spent: list[MetKeys] = []
        self._schemas: dict[str, list[TableSchema]] = {}
        self._names: dict[str, ReplicaName] = {}
        self._active: dict[str, RowsTable] = {}
        self._records = RecordedTables(connection, mirrored_table, name)
        rows, self._tables = self._records.rows, self._records.tables
        self._established = {row.topic: row.fingerprint for row in rows}
        self._recorded = frozenset(self._established)
        self._keys_tables = {row.topic: row.seen_table for row in rows if row.seen_table is not None}
        self.read_since = {row.topic: seconds(row.read_since) for row in rows if row.read_since is not None}

    @property
    def tables(self) -> Mapping[str, ReplicaTable]:
        """Every known replica table by topic."""
        return self._tables

    @property
    def active(self) -> Mapping[str, RowsTable]:
        """Each table that takes rows, by topic."""
        return self._active

    @property
    def met(self) -> Mapping[str, MetKeys]:
        """The keys that a rebuild has met so far, by topic."""
        return self._met

    def knows(self, schemas: Iterable[TableSchema]) -> bool:
        """Returns whether these definitions change nothing: each is the newest one of its topic."""
        return all(
            each.topic in self._schemas and self._schemas[each.topic][-1] == each and not self._is_retired(each.topic)
            for each in schemas
        )

    def learn(self, schemas: Iterable[TableSchema]) -> frozenset[str]:
        """Takes definitions in the order in which they were used, and creates or widens replica tables for them.

        Returns:
            Topics that begin anew: the rows of their tables are gone.

        Raises:
            TableRejected: the database refuses to create or widen a table.
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
        for topic in sorted(changed, key=self._is_retired, reverse=True):
            self._establish(topic, self._schemas[topic])
        emptied, self._emptied = frozenset(self._emptied), set()
        return emptied

    def source_table(self, topic: str) -> str:
        """Returns ``namespace.table`` of a topic's table in the source."""
        return self._schemas[topic][-1].qualified_name

    def begin(self, topic: str, *, resumes: bool, why_anew: str, is_asked: bool, now: float) -> Beginning:
        """Begins to fill the table of a topic. Arguments are those of ``ReplicaWriter.begin``."""
        rows = self._active.get(topic)
        if rows is None:
            return "stopped"
        found = FoundTable(
            resumes=resumes,
            is_created=topic in self._created,
            is_stripped=topic in self._stripped,
            is_recorded=topic in self._recorded,
            is_rebuilt=topic in self._keys_tables,
            holds_rows=rows.holds_rows(self._connection),
            reason=self._tables[topic].reason,
        )
        if found.has_foreign_rows and not is_asked:
            self.stop(topic, str(foreign_rows(self._names[topic], self._schemas[topic][-1])))
            return "stopped"
        why_anew = found.why_anew(why_anew, is_asked=is_asked)
        if why_anew or not resumes:
            self._begin_at_zero(topic, why_anew, found.holds_rows, now)
            return "anew"
        if topic in self._keys_tables:
            self._met[topic] = MetKeys(self._connection, self._dialect, self._keys_tables[topic], rows)
        if topic in self._keys_tables and self._tables[topic].state != TableState.REBUILDING:
            self._records.move(topic, TableEvent.REBUILD_RESUMED, reason=INTERRUPTED)
        else:
            self._records.move(topic, TableEvent.RESUMED)
        if self._tables[topic].state in IN_CUT:
            return "joined"
        if topic not in self.read_since:
            self.leave_cut(topic)
        return "outside"

    def leave_cut(self, topic: str) -> None:
        """Takes the topic out of the cut, and records until when it was known to be read to its end."""
        self._records.update(topic, read_since=self._caught_up_at())

    def stop(self, topic: str, reason: str, record: StoredRecord | None = None) -> None:
        """Records why a table takes no more rows, and the record that caused it, if one did."""
        self._stopped.add(topic)
        self._active.pop(topic, None)
        self._met.pop(topic, None)
        self._records.move(
            topic,
            TableEvent.REFUSED,
            reason=reason,
            **(NO_CULPRIT if record is None else culprit(record)),
            read_since=sa.func.coalesce(mirrored_table.c.read_since, self._caught_up_at()),
        )

    def stop_after_rollback(self, topic: str, reason: str, record: StoredRecord | None) -> None:
        """Likewise, after a rollback that may have undone the table's first record."""
        self._records.enter_again(topic)
        self.stop(topic, reason, record)

    def applied(self, counts: Mapping[str, int], standing: CutStanding) -> None:
        """Records a cut: how many rows each table took, and the state of each table that takes rows."""
        for topic in standing.joining:
            self._join(topic)
        for topic in self._active:
            events = at_cut(topic, standing)
            if rows := counts.get(topic, 0):
                self._records.move(topic, *events, rows_applied=self._tables[topic].rows_applied + rows)
            else:
                self._records.move(topic, *events)

    def drop_spent(self) -> None:
        """Drops the tables of keys of rebuilds that have ended. The cut that says so is committed."""
        while self._spent:
            self._spent.pop().drop()

    def drop_strays(self) -> None:
        """Drops tables of keys that a crash has left and that no sink's record names."""
        found = [each for each in sa.inspect(self._connection).get_table_names() if each.startswith(_KEYS)]
        if found:
            # Asked afterwards: a sink records the name of such a table before it creates one
            named = self._connection.scalars(sa.select(mirrored_table.c.seen_table)).all()
            for name in set(found) - set(named):
                self._connection.execute(sa.schema.DropTable(table_of(ReplicaName("", name), ()), if_exists=True))

    def _begin_at_zero(self, topic: str, why: str, holds_rows: bool, now: float) -> None:
        """Reads from the first offset. Existing rows stay until it is known that the topic does not have them."""
        name = _keys_table(self._name, topic)
        self._met.pop(topic, None)
        self._keys_tables.pop(topic, None)
        if why:
            log.warning(
                "rebuilding a table from its topic",
                table=self._tables[topic].name,
                reason=why,
                remedy="wait: the topic holds all of its rows; `cdc status` says how far",
            )
        # Before the table of keys is empty: a crash after that must not let a former rebuild go on with it
        self._records.move(
            topic,
            TableEvent.READ_AGAIN if why else TableEvent.READ,
            reason=why or None,
            read_since=microseconds(now),
            seen_table=name if holds_rows else None,
        )
        self._forget_offsets(topic)
        self._quarantine.clear(topic)
        met = MetKeys(self._connection, self._dialect, name, self._active[topic])
        reach("sink.before_keys_made")
        if holds_rows:
            met.begin()
            self._met[topic], self._keys_tables[topic] = met, name
        else:
            met.drop()

    def _owe(self, topic: str, why: str) -> None:
        """Records that the topic must be read from the first offset, before a table is made that does not show it."""
        if topic in self._active:
            raise ReplicaUnavailable(
                f"replica table {self._tables[topic].name} was dropped or altered under the running sink: {why}",
                remedy="wait: the sink checks its tables again; if this repeats, find out who alters them",
            )
        self._records.move(topic, TableEvent.READ_AGAIN, reason=why, seen_table=_keys_table(self._name, topic))
        self._forget_offsets(topic)

    def _forget_offsets(self, topic: str) -> None:
        self._connection.execute(
            sa.delete(partition_offset).where(partition_offset.c.name == self._name, partition_offset.c.topic == topic)
        )

    def _join(self, topic: str) -> None:
        """Ends a rebuild: the topic was read to its end, so rows whose keys were not met are not in it."""
        met, gone = self._met.pop(topic, None), 0
        try:
            if met is not None:
                gone = met.finish()
                self._spent.append(met)
        except sa.exc.DBAPIError as error:
            if blamed(self._dialect, error).blame is not Blame.ROWS:
                raise
            raise TableRejected(
                topic,
                f"rows that its topic does not have cannot be deleted: {first_line(error)}",
                remedy="correct the constraint or trigger of the replica table that fails, then restart the sink",
            ) from error
        if self._tables[topic].state == TableState.REBUILDING:
            log.info("table is rebuilt", table=self._tables[topic].name, rows_deleted=gone)
        self._keys_tables.pop(topic, None)
        self.read_since.pop(topic, None)
        self._records.update(topic, seen_table=None, read_since=None)

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
        self._records.enter(topic, str(name), newest.fingerprint)
        if topic in self._stopped:
            return
        try:
            plan = plan_table(self._connection, self._dialect, name, schemas)
        except TableRefused as error:
            self.stop(topic, str(error))
            return
        is_former = self._established.get(topic) in former_definitions(schemas)
        self._prepare(topic, plan, is_emptied=is_former or plan.is_rekeyed)
        try:
            plan.carry_out(self._connection)
        except sa.exc.DBAPIError as error:
            if blamed(self._dialect, error).blame is not Blame.ROWS:
                raise
            raise TableRejected(
                topic,
                f"replica table {name} cannot be created or widened: {first_line(error)}",
                remedy="change or drop the replica table so that it can be made, then restart the sink",
            ) from error
        reach("sink.after_table_changed")
        rows = RowsTable(self._dialect, name, schemas, plan.columns)
        self._active[topic] = rows
        if topic in self._met:
            self._met[topic] = MetKeys(self._connection, self._dialect, _keys_table(self._name, topic), rows)
        if is_former or plan.is_rekeyed:
            self._begin_anew(topic)
        if is_former and not plan.is_rekeyed:
            self._connection.execute(sa.delete(rows.table))
        # Last of all: until then, another session does the same again
        self._records.update(topic, fingerprint=newest.fingerprint)
        self._established[topic] = newest.fingerprint

    def _prepare(self, topic: str, plan: TablePlan, *, is_emptied: bool) -> None:
        """Notes what is to become of a table, and records what the table itself will not show afterwards."""
        was_stripped = is_stripped(self._established.get(topic, ""), self._schemas[topic], plan.added)
        if was_stripped:
            self._stripped.add(topic)
        if plan.is_new:
            self._created.add(topic)
        if topic in self._recorded and plan.is_new:
            self._owe(topic, DROPPED)
        elif topic in self._recorded and was_stripped:
            self._owe(topic, STRIPPED)
        elif is_emptied:
            self._records.move(topic, TableEvent.EMPTIED)
        reach("sink.before_table_changed")

    def _begin_anew(self, topic: str) -> None:
        """Notes that the table's rows are deleted, before the cut that says so."""
        self._emptied.add(topic)
        self._records.move(topic, TableEvent.EMPTIED)
        self._quarantine.clear(topic)
        if topic in self._keys_tables:  # with columns of the former key, perhaps
            MetKeys(self._connection, self._dialect, self._keys_tables[topic], self._active[topic]).begin()

    def _caught_up_at(self) -> sa.ScalarSelect[Any]:
        return sa.select(cut.c.caught_up_at).where(cut.c.name == self._name).scalar_subquery()

    def _is_retired(self, topic: str) -> bool:
        """Whether the source table is published to another topic now."""
        return self._placement.successor(self._schemas[topic][-1]) is not None


def _keys_table(name: str, topic: str) -> str:
    """Returns the name of the table of keys for a topic of a sink."""
    return f"{_KEYS}{blake2b(f'{name}/{topic}'.encode(), digest_size=8).hexdigest()}"
