"""Replica tables in PostgreSQL: executors stage rows, then one transaction per table merges them with the position.

A row belongs to a *record key*, column ``cdc_key``, the table's primary key: so the table is exactly the fold of the
topic, also while a key's old spelling (``1.0``) and its new one (``1.00``) come through different partitions.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql
from pyspark.sql import DataFrame

from cdc.contract.jobspec.deployment import Table
from cdc.contract.jobspec.mirror import PostgresTarget
from cdc.spark.errors import JobError
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.position import Batch, NotItsTurn, Offsets, Position, admits
from cdc.spark.mirror.replica_table import ReplicaTable, owned_by_sink
from cdc.spark.mirror.rows import RecordForm
from cdc.spark.mirror.staging import connection_arguments, open_connection, stage_rows

CONTROL: Final = "cdc_mirror"
"""Schema of our own tables; the sink's is ``cdc``."""

_SETUP: Final = f"""
CREATE SCHEMA IF NOT EXISTS {CONTROL};
CREATE TABLE IF NOT EXISTS {CONTROL}.position (
    topic text PRIMARY KEY,
    namespace text NOT NULL,
    name text NOT NULL,
    position jsonb NOT NULL,
    UNIQUE (namespace, name)
)
"""


class PostgresMirror:
    """A target in PostgreSQL.

    Args:
        target: which database and schema.
        tables: to mirror.

    Raises:
        JobError: the database does not answer, or a table belongs to the sink or to somebody else.
    """

    def __init__(self, target: PostgresTarget, tables: Sequence[Table]) -> None:
        self._arguments = connection_arguments(target.database)
        self._tables = {table.topic: ReplicaTable(target.namespace, table.name) for table in tables}
        self._forms: dict[str, RecordForm] = {}
        names = [table.name for table in tables]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise JobError(
                f"tables of several schemas are called {', '.join(twice)}: they would share a replica table",
                remedy="mirror them in separate runs, each with a --schema of its own",
            )
        try:
            self._connection = open_connection(self._arguments)
        except psycopg.Error as error:
            raise _impossible(target, error) from error
        try:
            with self._connection.transaction():
                # Two that begin at once would both find nothing there.
                self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (CONTROL,))
                self._connection.execute(_SETUP)
                for topic, table in self._tables.items():
                    self._claim(topic, table)
        except psycopg.Error as error:
            self._connection.close()
            raise _impossible(target, error) from error
        except JobError:
            self._connection.close()
            raise

    def close(self) -> None:
        """Leave the database."""
        self._connection.close()

    def establish(self, definitions: Definitions) -> None:
        """Create or widen every replica table, and make its staging table anew."""
        for topic, table in self._tables.items():
            schema, columns = definitions.newest(topic), definitions.columns(topic)
            try:
                with self._connection.transaction():
                    table.establish(self._connection, columns, schema.key)
            except psycopg.Error as error:
                raise JobError(
                    f"replica table {table} cannot take the definition {schema.fingerprint}: {_first_line(error)}",
                    remedy="rebuild it: the same command with --rebuild",
                ) from error
            self._forms[topic] = definitions.form(topic)

    def positions(self) -> Mapping[str, Position]:
        """By topic."""
        rows = self._connection.execute(
            sql.SQL("SELECT topic, position FROM {}.position WHERE topic = ANY (%s)").format(sql.Identifier(CONTROL)),
            (list(self._tables),),
        )
        return {topic: Position.from_fields(fields) for topic, fields in rows}

    def forget(self) -> None:
        """Drop the tables, to be made anew."""
        for topic, table in self._tables.items():
            with self._connection.transaction():
                self._locked(topic)
                table.drop(self._connection)
                self._write(topic, Position())

    def apply(self, topic: str, latest: DataFrame, batch: Batch, ends: Offsets) -> bool:
        """One transaction: the position is locked first, so of two mirrors one waits and then finds itself late."""
        try:
            return self._apply(topic, latest, batch, ends)
        except psycopg.Error as error:
            raise JobError(
                f"replica table {self._tables[topic]}: {_first_line(error)}",
                remedy="start again: nothing of the batch counts",
            ) from error

    def note_current(self, topic: str, position: Position, ends: Offsets, at_ms: int) -> None:
        """In the table's position."""
        with self._connection.transaction():
            if self._locked(topic) == position:
                self._write(topic, position.current(ends, at_ms))

    def finish(self) -> None:
        """Nothing: each batch left the tables whole."""

    def _apply(self, topic: str, latest: DataFrame, batch: Batch, ends: Offsets) -> bool:
        table, token = self._tables[topic], uuid.uuid4().hex
        with self._connection.transaction():
            position = self._locked(topic)
            if not admits(position, batch, ends):
                return False
            if ends:
                stage_rows(latest, self._forms[topic], self._arguments, table.stage, table.columns, token)
                table.merge(self._connection, token)
            self._write(topic, position.after(batch, ends))
        return True

    def _claim(self, topic: str, table: ReplicaTable) -> None:
        """Only a table that is ours, or not there yet, is written to."""
        holder = owned_by_sink(self._connection, table)
        if holder is not None:
            raise JobError(
                f"table {table} is the sink's mirror of topic {holder}", remedy="name another --schema for these copies"
            )
        row = self._connection.execute(
            "SELECT topic, position FROM cdc_mirror.position WHERE namespace = %s AND name = %s",
            (table.namespace, table.name),
        ).fetchone()
        if row is None and table.exists(self._connection):
            raise JobError(
                f"table {table} is there already and was not made by cdc mirror",
                remedy="name another --schema, or drop the table",
            )
        if row is not None and row[0] != topic:
            raise JobError(
                f"table {table} is the mirror of topic {row[0]}", remedy="name another --schema for this topic"
            )
        known = self._connection.execute(
            "SELECT namespace, name FROM cdc_mirror.position WHERE topic = %s", (topic,)
        ).fetchone()
        if known is not None and known != (table.namespace, table.name):
            raise JobError(
                f"topic {topic} is mirrored into {known[0]}.{known[1]} already",
                remedy=f"use --schema {known[0]}, or drop that table and its row in cdc_mirror.position",
            )
        if row is not None and not table.exists(self._connection) and Position.from_fields(row[1]).offsets:
            sys.stderr.write(f"table {table} is gone: it is made anew, from the beginning of its topic\n")
            self._write(topic, Position())
        self._connection.execute(
            "INSERT INTO cdc_mirror.position VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (topic, table.namespace, table.name, json.dumps(Position().as_fields())),
        )

    def _locked(self, topic: str) -> Position:
        row = self._connection.execute(
            "SELECT position FROM cdc_mirror.position WHERE topic = %s FOR UPDATE", (topic,)
        ).fetchone()
        if row is None:
            raise NotItsTurn(f"the position of {topic} is gone")
        return Position.from_fields(row[0])

    def _write(self, topic: str, position: Position) -> None:
        self._connection.execute(
            "UPDATE cdc_mirror.position SET position = %s WHERE topic = %s", (json.dumps(position.as_fields()), topic)
        )


def _impossible(target: PostgresTarget, error: psycopg.Error) -> JobError:
    where = f"{target.database.host}:{target.database.port}/{target.database.database}"
    return JobError(
        f"database {where}: {_first_line(error)}",
        remedy=f"is it up, and may {target.database.user} create schemas there (GRANT CREATE ON DATABASE …)?",
    )


def _first_line(error: psycopg.Error) -> str:
    text: Any = error.diag.message_primary or str(error)
    return str(text).strip().splitlines()[0]
