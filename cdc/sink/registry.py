"""Every table this sink mirrors: its definitions so far, its replica table, and its state as the replica records it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.errors import InsufficientPrivilege
from sqlalchemy.dialects.postgresql import insert

from cdc.errors import ConfigError
from cdc.ports import ReplicaTable, StoredRecord
from cdc.record import TableSchema
from cdc.sink.batch import TableStatements
from cdc.sink.control import mirrored_table
from cdc.sink.errors import TableRefused, first_line, is_retryable
from cdc.sink.grants import lacking
from cdc.sink.naming import ReplicaName, ReplicaNaming
from cdc.sink.placement import Placement, nowhere
from cdc.sink.tables import establish

_EXACT, _LOADING, _STOPPED = "exact", "loading", "stopped"


class TableRegistry:
    """Knows and keeps ``cdc.mirrored_table`` for one sink.

    Args:
        connection: to the replica; the caller begins and commits.
        name: of the sink.
        naming: where source tables go.
        stopped: topics that this process has stopped already: their tables are left alone until it is restarted.

    Attributes:
        is_source: the replica is the source's own database: a table mirrored into itself would feed itself for ever.
    """

    def __init__(
        self, connection: sa.Connection, name: str, naming: ReplicaNaming, stopped: Collection[str] = ()
    ) -> None:
        self._connection = connection
        self._session: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
        self._name = name
        self._placement = Placement(connection, name, naming)
        self._stopped = set(stopped)
        self._refilled_later: set[str] = set()
        self._schemas: dict[str, list[TableSchema]] = {}
        self._statements: dict[str, TableStatements] = {}
        self._staged = 0
        self.is_source = False
        rows = connection.execute(sa.select(mirrored_table).where(mirrored_table.c.name == name))
        self._tables = {
            row.topic: ReplicaTable(row.topic, row.replica_table, row.state, row.reason, row.rows_applied)
            for row in rows
        }

    @property
    def tables(self) -> Mapping[str, ReplicaTable]:
        """Every known replica table by topic."""
        return self._tables

    @property
    def statements(self) -> Mapping[str, TableStatements]:
        """How each table that takes rows takes them, by topic."""
        return self._statements

    def learn(self, schemas: Iterable[TableSchema]) -> None:
        """Take notice of definitions, in the order in which they were used.

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
        for topic in sorted(changed, key=self._is_retired, reverse=True):
            self._establish(topic, self._schemas[topic])

    def stop(self, topic: str, reason: str, record: StoredRecord | None = None) -> None:
        """Write down why a table takes no more rows; ``record`` did it, if any."""
        self._stopped.add(topic)
        self._statements.pop(topic, None)
        self._tables[topic] = self._tables[topic]._replace(state=_STOPPED, reason=reason)
        key = None if record is None or record.key is None else record.key.decode(errors="replace")
        self._connection.execute(
            sa.update(mirrored_table)
            .where(mirrored_table.c.name == self._name, mirrored_table.c.topic == topic)
            .values(
                state=_STOPPED,
                reason=reason,
                stopped_key=key,
                stopped_partition=record.partition if record else None,
                stopped_offset=record.offset if record else None,
            )
        )

    def applied(self, counts: Mapping[str, int], loading: Collection[str]) -> None:
        """At a cut: count rows by topic; whatever takes rows is exact now, unless its topic is not whole."""
        self._refilled_later.difference_update(loading)
        incomplete = {*loading, *self._refilled_later}
        states = {topic: _LOADING if topic in incomplete else _EXACT for topic in self._statements}
        changed = [topic for topic, state in states.items() if self._tables[topic].state != state]
        for topic in {**dict.fromkeys(changed), **counts}:
            table = self._tables[topic]
            self._tables[topic] = table._replace(
                state=states[topic], reason=None, rows_applied=table.rows_applied + counts.get(topic, 0)
            )
            self._connection.execute(
                sa.update(mirrored_table)
                .where(mirrored_table.c.name == self._name, mirrored_table.c.topic == topic)
                .values(
                    state=states[topic],
                    reason=None,
                    stopped_key=None,
                    stopped_partition=None,
                    stopped_offset=None,
                    rows_applied=self._tables[topic].rows_applied,
                )
            )

    def _establish(self, topic: str, schemas: Sequence[TableSchema]) -> None:
        newest, known = schemas[-1], self._tables.get(topic)
        if known is None and self._is_retired(topic):
            return  # nothing of it was ever here
        try:
            name = self._placement.place(newest, known and known.name)
        except TableRefused as error:
            if known is None:
                self._enter(topic, nowhere(topic), newest.fingerprint)
            self.stop(topic, str(error))
            return
        if self.is_source and (newest.namespace, newest.name) == name:
            raise ConfigError(
                f"sink.dsn is the source database, and table {name} would be mirrored into itself",
                remedy="set sink.schema or sink.prefix, and keep the replica tables out of source.tables",
            )
        self._enter(topic, str(name), newest.fingerprint)
        if topic in self._stopped:
            return
        try:
            with self._connection.begin_nested():
                columns, is_emptied = establish(self._connection, name, schemas)
                if (outgrown := self._statements.get(topic)) is not None:
                    self._session.execute(outgrown.drop)
                self._staged += 1
                statements = TableStatements(self._staged, name, schemas, columns)
                for statement in statements.prepare:
                    self._session.execute(statement)
        except TableRefused as error:
            self.stop(topic, str(error))
        except (sa.exc.DBAPIError, psycopg.Error) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            if not isinstance(cause, psycopg.Error) or is_retryable(cause):
                raise
            self.stop(topic, str(self._impossible(name, cause)))
        else:
            self._statements[topic] = statements
            if is_emptied:
                self._begin_anew(topic)

    def _impossible(self, name: ReplicaName, cause: psycopg.Error) -> TableRefused:
        """Why a replica table cannot be made or widened; with the grant, when it is for want of a right."""
        lacks = lacking(self._session, [name.schema], [name]) if isinstance(cause, InsufficientPrivilege) else []
        return TableRefused(
            f"replica table {name} cannot be created or widened: {first_line(cause)}",
            remedy=" ".join([*(lack.remedy for lack in lacks), "-- then restart the sink"]) if lacks else "",
        )

    def _begin_anew(self, topic: str) -> None:
        """Its rows are gone before the cut that says so: until the topic was seen to be filled again it is loading."""
        self._refilled_later.add(topic)
        self._tables[topic] = self._tables[topic]._replace(state=_LOADING)
        self._connection.execute(
            sa.update(mirrored_table)
            .where(mirrored_table.c.name == self._name, mirrored_table.c.topic == topic)
            .values(state=_LOADING)
        )

    def _is_retired(self, topic: str) -> bool:
        """Whether its source table is published to another topic by now."""
        return self._placement.successor(self._schemas[topic][-1]) is not None

    def _enter(self, topic: str, table: str, fingerprint: str) -> None:
        values: dict[str, Any] = {"replica_table": table, "fingerprint": fingerprint}
        known = self._tables.get(topic)
        if known is None or known.name != table:
            self._tables[topic] = ReplicaTable(topic, table, _LOADING, None, 0)
            values |= {"state": _LOADING, "reason": None}
        self._connection.execute(
            insert(mirrored_table)
            .values(name=self._name, topic=topic, **{"state": _LOADING, **values})
            .on_conflict_do_update(index_elements=["name", "topic"], set_=values)
        )
