"""Every type, every edge value: source → topic → replica with identical text, whatever the database's own settings."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from cdc.lab.stack import PostgresMajor
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.type_matrix import (
    KEYS,
    MORE_TYPES,
    ODD_SETTINGS,
    PINNED,
    SAME_BUT_SPELT_ANOTHER_WAY,
    available_extensions,
    matrix_tables,
)


def prepare(database: Database) -> psycopg.Connection[tuple[object, ...]]:
    """Types and extensions; a connection on which texts mean one thing."""
    with database.connect() as connection:
        for setting in ODD_SETTINGS:
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET {}").format(sql.Identifier(database.name), sql.SQL(setting))
            )
    connection = database.connect(options=PINNED)
    connection.execute(MORE_TYPES.encode())
    connection.execute("CREATE TABLE other.named (id integer PRIMARY KEY)")
    connection.execute("CREATE TABLE public.named (id integer PRIMARY KEY)")
    for extension in available_extensions(connection):
        connection.execute(sql.SQL("CREATE EXTENSION {} SCHEMA public").format(sql.Identifier(extension)))
    return connection


@pytest.mark.pg(16, 18)
def test_every_value_keeps_its_text(
    database: Database, replica: Database, deploy: Deploy, pg_major: PostgresMajor
) -> None:
    deployment = deploy(topics={"partitions": 1, "segment_ms": 1000, "min_compaction_lag_ms": 0})
    with prepare(database) as connection:
        if pg_major < 18:  # a replica that knows the custom types, and one that does not
            prepare(replica).close()
        tables = matrix_tables(connection)
        for table in tables:
            table.create(connection)
        names = [table.qualified for table in tables]
        deployment.start()
        for table in tables:
            table.insert(connection)
        deployment.assert_equal(*names)
        for table in tables:
            table.update(connection)
        deployment.assert_equal(*names)
        for table in tables:
            table.delete(connection)
        deployment.assert_equal(*names)
    deployment.stop()


@pytest.mark.pg(16, 18)
def test_every_type_as_key(database: Database, replica: Database, deploy: Deploy, pg_major: PostgresMajor) -> None:
    """Inserted, changed, moved, moved to another spelling of the same key, deleted."""
    deployment = deploy(topics={"partitions": 1})
    with prepare(database) as connection:
        if pg_major < 18:
            prepare(replica).close()
        names = [f"public.key of {kind}" for kind in KEYS]

        def execute(statement: str, kind: str, *values: object) -> None:
            table, key = sql.Identifier(f"key of {kind}"), sql.Identifier(f"k {kind}")
            literals = map(sql.Literal, values)
            connection.execute(sql.SQL(statement).format(*literals, table=table, key=key, kind=sql.SQL(kind)))

        for kind in KEYS:
            execute("CREATE TABLE {table} ({key} {kind}, also int, note text, PRIMARY KEY (also, {key}))", kind)
        deployment.start()
        with connection.transaction():
            for kind, values in KEYS.items():
                for number, value in enumerate(values):
                    execute("INSERT INTO {table} VALUES ({}, {}, 'new')", kind, value, number % 2)
        deployment.assert_equal(*names)
        with connection.transaction():
            for kind in KEYS:
                execute("UPDATE {table} SET note = 'changed'", kind)
                execute("UPDATE {table} SET also = also + 2 WHERE also = 0", kind)
        deployment.assert_equal(*names)
        for kind, (one, other) in SAME_BUT_SPELT_ANOTHER_WAY.items():
            execute("UPDATE {table} SET {key} = {} WHERE {key} = {}", kind, other, one)
        deployment.assert_equal(*names)
        with connection.transaction():
            for kind in KEYS:
                execute("DELETE FROM {table} WHERE also = 1", kind)
        deployment.assert_equal(*names)
    deployment.stop()
