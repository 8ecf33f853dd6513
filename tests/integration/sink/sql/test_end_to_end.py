"""PostgreSQL → topics → a file: the same rows on all three sides, through everything that happens to a table."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from cdc.lab.stack import AnyRegistry
from tests.integration.bridge.test_type_matrix import prepare
from tests.support.file_replicas import FileDeployment
from tests.support.forms import deploy_in
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.topic_audit import audit
from tests.support.type_matrix import KEYS, SAME_BUT_SPELT_ANOTHER_WAY, MatrixTable, matrix_tables

DeployToFile = Callable[..., FileDeployment]

TABLES = ("public.orders", "sales.lines")
CAPTURED = {"tables": ["public.*", "sales.*"], "on_gap": "rebackfill"}


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(
        "CREATE SCHEMA sales;"
        "CREATE TABLE orders (id int PRIMARY KEY, note text, price numeric(10,2), paid boolean);"
        "CREATE TABLE sales.lines (order_id int, line int, sku varchar(10), PRIMARY KEY (order_id, line));"
        "INSERT INTO orders SELECT i, 'first ' || i, i * 1.10, i % 2 = 0 FROM generate_series(1, 500) i;"
        "INSERT INTO sales.lines SELECT i, 1, 'x' FROM generate_series(1, 500) i"
    )
    return database


def test_all_sides_hold_the_same_rows(shop: Database, deploy_to_file: DeployToFile) -> None:
    deployment = deploy_to_file(source=CAPTURED)
    deployment.start()
    deployment.wait_backfilled(*TABLES)
    deployment.assert_equal(*TABLES)
    for step in (
        "UPDATE orders SET price = price + 0.01, note = NULL WHERE id % 3 = 0; DELETE FROM orders WHERE id % 5 = 0",
        "UPDATE orders SET id = -id WHERE id < 100; UPDATE sales.lines SET line = line + 1 WHERE order_id < 50",
        "ALTER TABLE orders ADD COLUMN size bigint; UPDATE orders SET size = id * 9007199254740993",
        "ALTER TABLE orders RENAME COLUMN note TO remark; UPDATE orders SET remark = remark || '!', paid = NOT paid",
        "ALTER TABLE sales.lines ALTER COLUMN sku TYPE text; INSERT INTO sales.lines VALUES (1, 99, repeat('y', 90))",
        "TRUNCATE orders; INSERT INTO orders SELECT i, 'second', 0, NULL, i FROM generate_series(1, 50) i",
        "ALTER TABLE sales.lines DROP CONSTRAINT lines_pkey, ADD PRIMARY KEY (order_id, line, sku);"
        "INSERT INTO sales.lines VALUES (1, 99, 'z'); DELETE FROM sales.lines WHERE order_id > 300",
    ):
        shop.execute(step)
        deployment.assert_equal(*TABLES)
    deployment.stop()


POINTS = ("sink.before_apply:1", "sink.before_apply:3", "sink.before_replica_commit:1", "sink.after_replica_commit:2")


@pytest.mark.parametrize("point", sampled(POINTS, POINTS[2:3]))
def test_a_killed_sink_loses_nothing_and_doubles_nothing(
    shop: Database, deploy_to_file: DeployToFile, point: str
) -> None:
    deployment = deploy_to_file(source=CAPTURED)
    deployment.start_bridge()
    deployment.sink.start(crashpoint=point)
    with shop.connect() as connection:
        # More rows than wait in memory for a cut
        connection.execute("INSERT INTO sales.lines SELECT i, 7, 'big' FROM generate_series(1, 70000) i")
        for number in range(1, 60):
            connection.execute("UPDATE orders SET id = id + 10000, note = 'moved' WHERE id = %s", (number,))
        connection.execute("DELETE FROM sales.lines WHERE order_id %% 7 = 0".replace("%%", "%").encode())
    assert deployment.sink.wait() == -signal.SIGKILL
    deployment.sink.start()
    deployment.assert_equal(*TABLES)
    for table in TABLES:
        assert audit(deployment.records(table)) == []
    deployment.stop()


def test_topics_in_another_format_become_the_same_rows(
    shop: Database, deploy_to_file: DeployToFile, registry: AnyRegistry
) -> None:
    deployment = deploy_in("avro keys", deploy_to_file, registry, source=CAPTURED, topics={"format": "avro"})
    deployment.start()
    deployment.wait_backfilled(*TABLES)
    deployment.assert_equal(*TABLES)
    shop.execute("UPDATE orders SET id = -id, note = NULL WHERE id < 50; DELETE FROM sales.lines WHERE order_id < 50")
    deployment.assert_equal(*TABLES)
    deployment.stop()


def test_events_in_an_envelope_become_the_same_rows(shop: Database, deploy_to_file: DeployToFile) -> None:
    deployment = deploy_in("debezium", deploy_to_file, source=CAPTURED)
    deployment.start()
    deployment.wait_backfilled(*TABLES)
    deployment.assert_equal(*TABLES)
    shop.execute("UPDATE orders SET id = -id, note = NULL WHERE id < 50; DELETE FROM sales.lines WHERE order_id < 50")
    deployment.assert_equal(*TABLES)
    deployment.stop()


def test_a_second_sink_takes_over_when_the_first_one_dies(shop: Database, deploy_to_file: DeployToFile) -> None:
    deployment = deploy_to_file(source=CAPTURED)
    port = deployment.settings["http"].pop("sink_port")  # only one of them could have it
    deployment.write()
    deployment.start_bridge()
    second = deployment.kind("sink", deployment.config, deployment.directory / "second.log")
    try:
        deployment.sink.start()
        deployment.sink.wait_said("all 2 tables are exact")
        second.start()
        second.wait_said("one process at a time" if deployment.file.is_exclusive else "waiting: another process")
        shop.execute("UPDATE orders SET note = 'by the first or the second' WHERE id % 2 = 0")
        deployment.sink.kill()
        second.wait_said("all 2 tables are exact")
        assert second.stop() == 0
    finally:
        second.kill()
    deployment.settings["http"]["sink_port"] = port
    deployment.write()
    deployment.sink.start()
    deployment.sink.wait_said("mirroring")  # the rows are there already: equality alone does not show that it has begun
    deployment.assert_equal(*TABLES)
    deployment.stop()


def test_commands_speak_of_the_file(shop: Database, deploy_to_file: DeployToFile) -> None:
    deployment = deploy_to_file(source=CAPTURED)
    deployment.start_bridge()
    said = deployment.command("check")
    assert deployment.file.url.partition("://")[2].removeprefix("/") in said
    assert "replica needs" not in said
    assert "cdc knows no grants for" in deployment.command("grants", "sink", code=2)
    deployment.sink.start()
    deployment.assert_equal(*TABLES)
    told = json.loads(deployment.command("status", "--json"))["sink"]
    assert (told["exact"], told["running"]) == (True, True)
    assert {each["state"] for each in told["tables"]} == {"exact"}
    deployment.command("check")
    deployment.sink.stop()
    told = json.loads(deployment.command("status", "--json", code=4).partition("\n}")[0] + "\n}")["sink"]
    assert (told["exact"], told["running"]) == (True, False)
    deployment.stop()


def test_every_value_keeps_its_text(database: Database, deploy_to_file: DeployToFile) -> None:
    deployment = deploy_to_file(topics={"partitions": 1})
    with prepare(database) as connection:
        tables = [replace(each, columns=_held(each, deployment.file.beyond)) for each in matrix_tables(connection)]
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


def test_every_type_as_key(database: Database, deploy_to_file: DeployToFile) -> None:
    """Inserted, changed, moved, moved to another spelling of the same key, deleted."""
    deployment = deploy_to_file(topics={"partitions": 2})
    beyond = deployment.file.beyond
    keys = {
        kind: [each for each in values if not re.search(beyond, f"'{each}'::{kind}")] for kind, values in KEYS.items()
    }
    with prepare(database) as connection:
        names = [f"public.key of {kind}" for kind in KEYS]
        for kind in KEYS:
            _execute(connection, "CREATE TABLE {table} ({key} {kind}, also int, PRIMARY KEY (also, {key}))", kind)
        deployment.start()
        for kind, values in keys.items():
            for number, value in enumerate(values):
                _execute(connection, "INSERT INTO {table} VALUES ({}, {})", kind, value, number % 2)
        deployment.assert_equal(*names)
        for kind in KEYS:
            _execute(connection, "UPDATE {table} SET also = also + 2 WHERE also = 0", kind)
        for kind, (one, other) in SAME_BUT_SPELT_ANOTHER_WAY.items():
            _execute(connection, "UPDATE {table} SET {key} = {} WHERE {key} = {}", kind, other, one)
        deployment.assert_equal(*names)
        for kind in KEYS:
            _execute(connection, "DELETE FROM {table} WHERE also = 1", kind)
        deployment.assert_equal(*names)
    deployment.stop()


def _held(table: MatrixTable, beyond: str) -> dict[str, Sequence[str]]:
    """Columns and values without those that the replica refuses."""
    return {name: [each for each in values if not re.search(beyond, each)] for name, values in table.columns.items()}


def _execute(connection: psycopg.Connection[tuple[object, ...]], statement: str, kind: str, *values: object) -> None:
    table, key = sql.Identifier(f"key of {kind}"), sql.Identifier(f"k {kind}")
    connection.execute(sql.SQL(statement).format(*map(sql.Literal, values), table=table, key=key, kind=sql.SQL(kind)))
