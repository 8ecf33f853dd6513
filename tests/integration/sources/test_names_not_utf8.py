"""A SQL_ASCII database with names that are not UTF-8: whoever owns them, the other tables are captured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cdc.lab.stack import Kafka
from tests.integration.living.waiting import cdc
from tests.support.deployment import deployed
from tests.support.names import unique
from tests.support.servers import Database, Servers, drop_slots

SETUP = b"""
CREATE TABLE good (id int PRIMARY KEY, n int NOT NULL, note text);
CREATE UNIQUE INDEX "i\xe9" ON good (n);
INSERT INTO good SELECT i, i, '\xc5\xbc\xc3\xb3\xc5\x82w' FROM generate_series(1, 10) i;
CREATE SCHEMA "caf\xe9";
CREATE TABLE "caf\xe9".theirs (id int PRIMARY KEY);
CREATE VIEW "v\xe9" AS SELECT 1 AS "\xe9";
CREATE TABLE "t\xe9" (id int PRIMARY KEY);
CREATE TABLE columns (id int PRIMARY KEY, "na\xefve" text);
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE "part\xe9" PARTITION OF parts FOR VALUES FROM (0) TO (9);
CREATE TYPE "mood\xe9" AS ENUM ('x');
CREATE TABLE typed (id int PRIMARY KEY, mood "mood\xe9");
"""
LEFT_OUT = {
    "public.columns": "column na\\357ve",
    "public.parts": "in a partition, its name",
    "public.t\\351": "its name",
    "public.typed": "the type of column mood",
}


@pytest.fixture
def source(servers: Servers) -> Iterator[Database]:
    server, name = servers.of(16), unique("ascii_")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        make = "CREATE DATABASE {} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        admin.execute(sql.SQL(make).format(sql.Identifier(name)))
    try:
        raw = psycopg.conninfo.make_conninfo(server.dsn(name), client_encoding="SQL_ASCII")
        with psycopg.connect(raw, autocommit=True) as connection:
            connection.execute(SETUP)
        yield Database(name, psycopg.conninfo.make_conninfo(server.dsn(name), client_encoding="UTF8"))
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            drop_slots(admin, name)
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.parametrize("mode", ["filtered", "all_tables"])
def test_the_other_tables_are_captured(
    mode: str, source: Database, replica: Database, kafka: Kafka, tmp_path: Path
) -> None:
    settings = {"tables": ["public.*"], "publication_mode": mode}
    with deployed(source, kafka.bootstrap, replica, tmp_path, {"source": settings}) as deployment:
        listed = {each["table"]: each["refusal"] for each in json.loads(cdc(deployment, "tables", "list", "--json"))}
        assert listed.pop("public.good") == ""
        assert listed == {table: f"a table with a name that is not UTF-8 ({what})" for table, what in LEFT_OUT.items()}
        checked = cdc(deployment, "check")
        assert "public.columns: has a name that is not UTF-8 (column na\\357ve), and is left out" in checked
        assert "CREATE PUBLICATION" in cdc(deployment, "grants", "source")
        deployment.start()
        deployment.bridge.wait_said("rename it, in a session with client_encoding = SQL_ASCII")
        deployment.wait_backfilled("public.good")
        source.execute("INSERT INTO good VALUES (11, 11, 'ż')")
        deployment.assert_equal("public.good")
        assert "public.good" in cdc(deployment, "status")
        deployment.stop()


def test_a_table_that_is_named_is_refused_with_the_reason(
    source: Database, replica: Database, kafka: Kafka, tmp_path: Path
) -> None:
    settings = {"tables": ["public.good", "public.columns"]}
    with deployed(source, kafka.bootstrap, replica, tmp_path, {"source": settings}) as deployment:
        deployment.bridge.start()
        said = deployment.bridge.refusal(3)
    assert "public.columns has a name that is not UTF-8 (column na\\357ve)" in said


def test_a_captured_table_that_gets_such_a_name_leaves_at_the_next_start(
    source: Database, replica: Database, kafka: Kafka, tmp_path: Path
) -> None:
    source.execute("CREATE TABLE later (id int PRIMARY KEY)")
    with deployed(source, kafka.bootstrap, replica, tmp_path, {"source": {"tables": ["public.*"]}}) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled("public.later", "public.good")
        deployment.bridge.stop()
        raw = psycopg.conninfo.make_conninfo(source.dsn, client_encoding="SQL_ASCII")
        with psycopg.connect(raw, autocommit=True) as connection:
            connection.execute(b'ALTER TABLE later ADD "\xe9" int')
        deployment.start_bridge()
        source.execute("INSERT INTO later VALUES (1); INSERT INTO good VALUES (12, 12, '')")
        deployment.wait_published()
        assert source.execute("SELECT tablename FROM pg_publication_tables WHERE tablename = 'later'") == []
        deployment.assert_published("public.good")
        deployment.stop()
