"""Topics in Debezium's envelope: what each change becomes, and that all readers of ours hold the table all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from cdc.contract.ports import StoredRecord
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.topics.lookup.test_commands import told, watching
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database
from tests.support.type_catalogue import fits_debezium
from tests.support.type_matrix import MatrixTable, matrix_tables
from tests.support.waiting import eventually

_MODES: Final[list[dict[str, Any]]] = [
    {},
    {"decimal_handling_mode": "string", "time_precision_mode": "isostring", "binary_handling_mode": "hex"},
    {"time_precision_mode": "microseconds", "binary_handling_mode": "base64-url-safe", "schemas_enable": True},
    {"time_precision_mode": "adaptive_time_microseconds", "hstore_handling_mode": "map"},
]


ONE_PARTITION: Final = {"partitions": 1}
"""Changes of all keys then stay in their order."""


def event(record: StoredRecord) -> Any:
    """The change event of a record; None for a tombstone."""
    return None if record.value is None else json.loads(record.value)


def changes(deployment: Deployment, table: str) -> list[Any]:
    """Of each record in its order: the key, the operation (empty for a tombstone), the rows before and after."""
    found = []
    for record in deployment.records(table):
        value = event(record) or {"op": "", "before": None, "after": None}
        found.append((json.loads(record.key or b""), value["op"], value["before"], value["after"]))
    return found


def test_what_each_change_becomes(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, n numeric(5,2))")
    database.execute("CREATE TABLE f (id integer PRIMARY KEY, a text)")
    database.execute("ALTER TABLE f REPLICA IDENTITY FULL")
    database.execute("INSERT INTO t VALUES (1, 'x', 1.5)")
    deployment = deploy_in("debezium", deploy, topics=ONE_PARTITION)
    deployment.start()
    deployment.wait_backfilled("public.t", "public.f")
    for table in ("t", "f"):
        database.execute(f"INSERT INTO {table} VALUES (2, 'y')")
        database.execute(f"UPDATE {table} SET a = 'z' WHERE id = 2")
        database.execute(f"UPDATE {table} SET id = 3 WHERE id = 2")
        database.execute(f"DELETE FROM {table} WHERE id = 3")
    deployment.assert_equal("public.t", "public.f")
    none = {"a": None, "n": None}
    assert changes(deployment, "public.t") == [
        ({"id": 1}, "r", None, {"id": 1, "a": "x", "n": "AJY="}),
        ({"id": 2}, "c", None, {"id": 2, "a": "y", "n": None}),
        ({"id": 2}, "u", None, {"id": 2, "a": "z", "n": None}),
        ({"id": 2}, "d", {"id": 2, **none}, None),
        ({"id": 2}, "", None, None),
        ({"id": 3}, "c", None, {"id": 3, "a": "z", "n": None}),
        ({"id": 3}, "d", {"id": 3, **none}, None),
        ({"id": 3}, "", None, None),
    ]
    assert changes(deployment, "public.f") == [
        ({"id": 2}, "c", None, {"id": 2, "a": "y"}),
        ({"id": 2}, "u", {"id": 2, "a": "y"}, {"id": 2, "a": "z"}),
        ({"id": 2}, "d", {"id": 2, "a": "z"}, None),
        ({"id": 2}, "", None, None),
        ({"id": 3}, "c", None, {"id": 3, "a": "z"}),
        ({"id": 3}, "d", {"id": 3, "a": "z"}, None),
        ({"id": 3}, "", None, None),
    ]


def test_where_a_change_comes_from(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    deployment = deploy_in("debezium", deploy, topics=ONE_PARTITION)
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")  # or it may meet the rows as well
    with database.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO t VALUES (1), (2)")
        ((xid,),) = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
    deployment.wait_published()
    first, second = deployment.records("public.t")
    header = dict(pair.split("=") for pair in first.header.decode().split(";"))
    assert header["envelope"] == "precise.adaptive.bytes.json.plain"
    high, low = header["lsn"].split("/")
    lsn, micros = int(high, 16) << 32 | int(low, 16), int(header["ts"])
    value = event(first)
    assert list(value) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert micros // 1000 <= value["ts_ms"] == value["ts_us"] // 1000 == value["ts_ns"] // 1_000_000
    version = value["source"].pop("version")
    assert version
    assert value["source"] == {
        "connector": "postgresql",
        "name": deployment.name,
        "ts_ms": micros // 1000,
        "snapshot": "false",
        "db": database.name,
        "sequence": f'["{lsn}","1"]',
        "ts_us": micros,
        "ts_ns": micros * 1000,
        "schema": "public",
        "table": "t",
        "txId": xid,
        "lsn": lsn,
        "xmin": None,
        "origin": None,
        "origin_lsn": None,
    }
    assert event(second)["source"]["sequence"] == f'["{lsn}","2"]'


def test_truncate_sweep_and_repair_are_deletes(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    deployment = deploy_in("debezium", deploy, topics=ONE_PARTITION)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    database.execute("TRUNCATE t")
    database.execute("INSERT INTO t VALUES (2, 'z')")
    deployment.assert_equal("public.t")
    found = changes(deployment, "public.t")
    assert [each[1] for each in found] == ["c", "c", "d", "", "d", "", "c"]
    assert found[2][2] == {**found[2][0], "a": None}
    assert "done" in deployment.command("backfill", "public.t", "--sweep")
    deployment.assert_equal("public.t")


def test_a_large_value_that_an_update_did_not_touch(deploy: Deploy, database: Database) -> None:
    """Debezium has a placeholder for it; here the row is whole."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, big text, n integer)")
    database.execute("CREATE TABLE f (id integer PRIMARY KEY, big text, n integer)")
    database.execute("ALTER TABLE f REPLICA IDENTITY FULL")
    deployment = deploy_in("debezium", deploy, topics=ONE_PARTITION)
    deployment.start()
    deployment.wait_backfilled("public.t", "public.f")
    big = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"
    for table in ("t", "f"):
        database.execute(f"INSERT INTO {table} VALUES (1, {big}, 1)")
        database.execute(f"UPDATE {table} SET n = 2")
        deployment.wait_published()  # it is read again, and must be there under this key
        database.execute(f"UPDATE {table} SET id = 2")
    deployment.assert_equal("public.t", "public.f")
    for table in ("public.t", "public.f"):
        found = changes(deployment, table)
        assert [each[1] for each in found] == ["c", "u", "d", "", "c"]
        assert {len(each[3]["big"]) for each in found if each[3]} == {9600}
    assert changes(deployment, "public.f")[1][2]["n"] == 1


def fitting(tables: list[MatrixTable], connection: psycopg.Connection[Any]) -> Iterator[MatrixTable]:
    """The tables with the values that Debezium's types hold."""
    for table in tables:
        columns = {}
        for name, expressions in table.columns.items():
            kept = []
            for expression in expressions:
                ((text,),) = connection.execute(f"SELECT ({expression})::text".encode()).fetchall()
                if fits_debezium(name, text):
                    kept.append(expression)
            if kept:
                columns[name] = kept
        yield replace(table, columns=columns)


@pytest.mark.parametrize("modes", _MODES, ids=["defaults", "strings", "schemas", "map"])
def test_every_type(deploy: Deploy, database: Database, replica: Database, modes: dict[str, Any]) -> None:
    deployment = deploy_in("debezium", deploy, topics=ONE_PARTITION, debezium=modes)
    with prepare(database) as connection:
        prepare(replica).close()
        tables = list(fitting(matrix_tables(connection), connection))
        names = [table.qualified for table in tables]
        for table in tables:
            table.create(connection)
            table.insert(connection)  # the backfill's
        deployment.start()
        deployment.wait_backfilled(*names)
        deployment.assert_equal(*names)
        for table in tables:
            table.update(connection)
        deployment.assert_equal(*names)
        for table in tables:
            table.delete(connection)
        deployment.assert_equal(*names)


def test_a_value_that_does_not_fit_names_its_row(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, at timestamptz)")
    deployment = deploy_in("debezium", deploy, topics=ONE_PARTITION)
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (1, now()), (7, 'infinity')")
    said = deployment.bridge.refusal(3)
    assert "public.t" in said
    assert "{'id': b'7'}" in said
    assert "column at" in said


def test_another_envelope_begins_the_topic_anew_or_is_refused(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, n numeric(5,2))")
    database.execute("INSERT INTO t VALUES (1, 'x', 1)")
    deployment = deploy(topics={"partitions": 1})
    deployment.start()
    database.execute("INSERT INTO t VALUES (2, 'y', 2)")
    deployment.assert_equal("public.t")
    deployment.bridge.stop()
    deployment.settings["topics"]["envelope"] = "debezium"
    deployment.write()
    deployment.bridge.start()
    assert "its values are to be written as json in Debezium's envelope" in deployment.bridge.refusal(3)
    deployment.settings["source"]["on_gap"] = "rebackfill"
    for modes in ({}, {"decimal_handling_mode": "string"}, None):
        deployment.settings["topics"]["envelope"] = "plain" if modes is None else "debezium"
        deployment.settings["debezium"] = modes or {}
        deployment.write()
        deployment.start_bridge()
        database.execute("UPDATE t SET n = n + 1 WHERE id = 2")
        deployment.wait_published()  # the former backfill is done as well
        deployment.wait_backfilled("public.t")
        deployment.assert_equal("public.t")
        deployment.bridge.stop()
    assert all(b"envelope=" not in record.header for record in deployment.records("public.t")[-2:])
    # A reader that begins at the first offset meets rows, envelopes of two kinds, and rows again
    deployment.sink.stop()
    deployment.replica.execute("DROP SCHEMA cdc CASCADE")
    deployment.replica.execute("DROP TABLE t")
    deployment.start()
    deployment.assert_equal("public.t")


def test_rows_are_looked_up(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, n numeric(5,2), at timestamptz)")
    deployment = deploy_in("debezium", deploy, topics=ONE_PARTITION)
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    database.execute("INSERT INTO t VALUES (1, 'ä\"', 1.50, '2026-01-02 03:04:05.6Z'), (2, 'x', 0, NULL)")
    database.execute("DELETE FROM t WHERE id = 2")
    deployment.wait_published()
    found = json.loads(deployment.command("get", "public.t", "1", "--json"))
    assert found["row"] == {"id": 1, "a": 'ä"', "n": "1.50", "at": "2026-01-02 03:04:05.6+00"}
    with watching("public.t", "-c", deployment.config, "--json", "--from-beginning") as watched:
        found = [told(watched) for _ in range(3)]
    assert [(each["key"]["id"], each["op"], each["row"] and each["row"]["n"]) for each in found] == [
        (1, "insert", "1.50"),
        (2, "insert", "0.00"),
        (2, "delete", None),
    ]
    assert "delete is the newest record of the key" in deployment.command("get", "public.t", "2", code=1)


def test_views_show_it(deploy: Deploy, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, at timestamptz)")
    database.execute("INSERT INTO t VALUES (1, 'x', '2026-01-02 03:04:05.6Z')")
    deployment = deploy_in("debezium", deploy, view={"store": "view", "index": {"public.t": ["a"]}}, serve={"port": 0})
    deployment.start_bridge()
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        database.execute("INSERT INTO t VALUES (2, NULL, NULL), (3, 'z', now())")
        database.execute("DELETE FROM t WHERE id = 3")
        lsn = str(deployment.wait_published())
        with service.client() as client:

            def row(number: int) -> Any:
                answer = client.get(f"/v1/tables/public.t/rows/{number}", params={"min_lsn": lsn})
                return answer.json() if answer.status_code == 200 else answer.status_code

            assert eventually(lambda: row(1)) == {"id": 1, "a": "x", "at": "2026-01-02 03:04:05.6+00"}
            assert row(2) == {"id": 2, "a": None, "at": None}
            assert row(3) == 404
    finally:
        service.kill()
