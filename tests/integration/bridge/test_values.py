"""Topics in the forms of the section values: what readers find there, and that ours hold the table all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.topics.lookup.test_commands import told, watching
from tests.support.deployment import Deploy
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database
from tests.support.type_matrix import MatrixTable, matrix_tables
from tests.support.waiting import eventually

_ALL: Final = {"timestamps": "iso", "numeric": "number", "bytea": "base64", "documents": "string"}
_CONNECT: Final = {"timestamps": "iso", "bytea": "base64", "documents": "string", "schemas": "connect"}
_TABLE: Final = """CREATE TABLE t (id integer PRIMARY KEY, at timestamptz, placed timestamp, price numeric(12,2),
    rate numeric, raw bytea, doc jsonb, more json, times timestamptz[], prices numeric[])"""
_ROW: Final = """INSERT INTO t VALUES (1, '2026-01-02 03:04:05.6Z', '2026-01-02 03:04', 1.50, 12345678901234567.5,
    '\\x00ff', '{"a": 1}', 'null', '{2026-01-02 03:04:05Z,infinity,NULL}', '{1.10,NaN}')"""


def values_of(record: Any) -> Any:
    """The members of a value, with the digits of its numbers."""
    return json.loads(record.value, parse_float=str, parse_int=str)


def test_what_readers_find(deploy: Deploy, database: Database) -> None:
    database.execute(_TABLE)
    database.execute("CREATE TABLE u (id integer PRIMARY KEY, a numeric, b numeric, at timestamp, doc jsonb)")
    columns = {"a": {"numeric": "text"}, "at": {"timestamps": "iso"}}
    tables = {"public.u": {"timestamps": "postgres", "documents": "embedded", "columns": columns}}
    deployment = deploy(topics={"partitions": 1, "history": ["public.t"]}, values={**_ALL, "tables": tables})
    deployment.start()
    deployment.wait_backfilled("public.t", "public.u")  # or it may meet the rows as well
    database.execute(_ROW)
    database.execute("INSERT INTO t VALUES (2, 'infinity', '0044-03-15 BC', 'NaN')")
    database.execute("INSERT INTO u VALUES (1, 1.5, 1.5, '2026-01-02', '[1]')")
    deployment.wait_mirrored()
    first, second = deployment.records("public.t")
    assert values_of(first) == {
        "id": "1",
        "at": "2026-01-02T03:04:05.6Z",
        "placed": "2026-01-02T03:04:00",
        "price": "1.50",
        "rate": "12345678901234567.5",
        "raw": "AP8=",
        "doc": '{"a": 1}',
        "more": "null",
        "times": ["2026-01-02T03:04:05Z", "infinity", None],
        "prices": ["1.10", "NaN"],
    }
    assert b'"price":1.50,"rate":"12345678901234567.5"' in (first.value or b"")
    assert {name: value for name, value in values_of(second).items() if value is not None} == {
        "id": "2",
        "at": "infinity",
        "placed": "0044-03-15 00:00:00 BC",
        "price": "NaN",
    }
    (other,) = deployment.records("public.u")
    assert other.value == b'{"id":1,"a":"1.5","b":1.5,"at":"2026-01-02T00:00:00","doc":[1]}'
    change = json.loads(deployment.command("history", "public.t", "1", "--json").splitlines()[0])
    assert (change["new"]["at"], change["new"]["price"]) == ("2026-01-02 03:04:05.6+00", "1.50")
    replicated = deployment.replica.execute("SELECT at::text, price::text, doc::text, more::text FROM t WHERE id = 1")
    assert replicated == [("2026-01-02 03:04:05.6+00", "1.50", '{"a": 1}', "null")]


def fitting(tables: list[MatrixTable], connection: psycopg.Connection[Any]) -> Iterator[MatrixTable]:
    """The tables with the values that Connect's types hold."""
    for table in tables:
        columns = {}
        for name, expressions in table.columns.items():
            kept = []
            for expression in expressions:
                ((text,),) = connection.execute(f"SELECT ({expression})::text".encode()).fetchall()
                is_array = name.endswith("[]") or name == "texts"
                is_float = name.startswith(("real", "double", "float"))
                if not (is_array and text.startswith(("[", "{{"))) and not (is_float and ("N" in text or "y" in text)):
                    kept.append(expression)
            if kept and "_Odd" not in name:  # an array by its name only
                columns[name] = kept
        yield replace(table, columns=columns)


@pytest.mark.parametrize("values", [_ALL, _CONNECT], ids=["forms", "connect"])
def test_every_type(deploy: Deploy, database: Database, replica: Database, values: dict[str, Any]) -> None:
    deployment = deploy(values=values)
    with prepare(database) as connection:
        prepare(replica).close()
        tables = list(matrix_tables(connection))
        if "schemas" in values:
            tables = list(fitting(tables, connection))
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


def test_a_value_that_does_not_fit_connects_schema_names_its_row(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, n double precision)")
    deployment = deploy(values=_CONNECT)
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (1, 1.5), (7, 'NaN')")
    said = deployment.bridge.refusal(3)
    assert "public.t" in said
    assert "{'id': b'7'}" in said
    assert "does not fit Kafka Connect's schema" in said


def test_other_forms_begin_the_topic_anew_or_are_refused(deploy: Deploy, database: Database) -> None:
    database.execute(_TABLE)
    database.execute("CREATE TABLE u (id integer PRIMARY KEY, a text)")
    database.execute(_ROW)
    deployment = deploy(topics={"partitions": 1})
    deployment.start()
    database.execute("UPDATE t SET id = 2")
    deployment.assert_equal("public.t")
    deployment.bridge.stop()
    deployment.settings["values"] = {"timestamps": "iso", "numeric": "number"}
    deployment.write()
    deployment.bridge.start()
    said = deployment.bridge.refusal(3)
    assert "table public.t cannot go on" in said
    assert "json with at as iso, placed as iso, price as number, rate as number, times as iso, prices as number" in said
    deployment.settings["source"]["on_gap"] = "rebackfill"
    for values in ({"timestamps": "iso", "numeric": "number"}, _ALL, _CONNECT, {}):
        deployment.settings["values"] = values
        deployment.write()
        deployment.start_bridge()
        database.execute("UPDATE t SET rate = rate + 1, id = -id")
        database.execute("INSERT INTO t SELECT max(id) + 1, now() FROM t")
        deployment.wait_published()  # the former backfill is done as well
        deployment.wait_backfilled("public.t")
        deployment.assert_equal("public.t", *(() if values == _CONNECT else ("public.u",)))
        deployment.bridge.stop()
    # A reader that begins at the first offset meets rows in all these forms
    deployment.sink.stop()
    deployment.replica.execute("DROP SCHEMA cdc CASCADE")
    deployment.replica.execute("DROP TABLE t")
    deployment.start()
    deployment.assert_equal("public.t")


def test_rows_are_looked_up_and_watched(deploy: Deploy, database: Database) -> None:
    database.execute(_TABLE)
    deployment = deploy(values=_ALL)
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    database.execute(_ROW)
    deployment.wait_published()
    found = json.loads(deployment.command("get", "public.t", "1", "--json"))
    assert (found["row"]["at"], found["row"]["raw"]) == ("2026-01-02 03:04:05.6+00", "\\x00ff")
    with watching("public.t", "-c", deployment.config, "--json", "--from-beginning") as watched:
        row = told(watched)["row"]
    assert (row["placed"], row["rate"], row["doc"]) == ("2026-01-02 03:04:00", "12345678901234567.5", {"a": 1})


def test_views_show_them(deploy: Deploy, database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, price numeric(12,2), at timestamptz)")
    database.execute("INSERT INTO t VALUES (1, 1.5, '2026-01-02 03:04:05.6Z')")
    deployment = deploy(values=_CONNECT, view={"store": "view", "index": {"public.t": ["at"]}}, serve={"port": 0})
    deployment.start_bridge()
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        lsn = str(deployment.wait_published())
        with service.client() as client:

            def row(number: int) -> Any:
                answer = client.get(f"/v1/tables/public.t/rows/{number}", params={"min_lsn": lsn})
                return answer.json() if answer.status_code == 200 else answer.status_code

            assert eventually(lambda: row(1)) == {"id": 1, "price": "1.50", "at": "2026-01-02 03:04:05.6+00"}
    finally:
        service.kill()
