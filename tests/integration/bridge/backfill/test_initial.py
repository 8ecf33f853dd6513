"""A bridge started on a database that holds rows already: every table is published whole, beside the stream."""

from __future__ import annotations

import pytest

from cdc.lab.proof.topic_side import read_header
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.topic_audit import audit

ROWS = 30_000


def populate(database: Database) -> list[str]:
    """Tables of every kind, with rows; their names."""
    for statement in (
        "CREATE TABLE item (id bigint PRIMARY KEY, note text, doc jsonb, price numeric(8,2), tags text[])",
        f"INSERT INTO item SELECT i, CASE i % 3 WHEN 0 THEN NULL"
        " WHEN 1 THEN E'tab\\t, line\\n, \\\\back' ELSE 'n' || i END,"
        " CASE i % 2 WHEN 0 THEN 'null' ELSE '{\"a\": [1, null]}' END::jsonb, i / 7.0, ARRAY['x', NULL, 'a,b']"
        f" FROM generate_series(1, {ROWS}) i",
        "CREATE TABLE pair (b text, a integer, v text, PRIMARY KEY (a, b))",
        "INSERT INTO pair SELECT 'ü' || i, i, '' FROM generate_series(1, 100) i",
        "CREATE TABLE nothing (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region)",
        "CREATE TABLE parted_eu PARTITION OF parted FOR VALUES IN ('eu')",
        "CREATE TABLE parted_us (region text, extra int, id int NOT NULL)",
        "ALTER TABLE parted_us DROP COLUMN extra, ALTER region SET NOT NULL",
        "ALTER TABLE parted ATTACH PARTITION parted_us FOR VALUES IN ('us')",
        "INSERT INTO parted SELECT i, CASE i % 2 WHEN 0 THEN 'eu' ELSE 'us' END FROM generate_series(1, 500) i",
        "CREATE DOMAIN short AS varchar(9)",
        "CREATE TABLE toasted (id int PRIMARY KEY, big text, d short)",
        "ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO toasted SELECT i, repeat('ö' || i, 4000), 'd' FROM generate_series(1, 50) i",
    ):
        database.execute(statement)
    return ["public.item", "public.pair", "public.nothing", "public.parted", "public.toasted"]


@pytest.mark.pg(16, 18)
def test_rows_from_before_the_first_start(database: Database, deploy: Deploy) -> None:
    tables = populate(database)
    deployment = deploy()
    deployment.start()
    deployment.wait_backfilled(*tables)
    deployment.assert_equal(*tables)
    records = deployment.records(*tables)
    assert audit(records) == []
    headers = [read_header(record.header)[2] for record in records]
    assert {header["op"] for header in headers} == {"r"}
    assert all("snap" in header and "xid" not in header for header in headers)
    assert deployment.backfills()["public.item"].rows == ROWS


def test_the_stream_names_the_same_definition(database: Database, deploy: Deploy) -> None:
    """What the catalog says and what the stream says must have one fingerprint, or every table had two."""
    tables = populate(database)
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled(*tables)
    for statement in (
        "UPDATE item SET price = 1 WHERE id = 1",
        "UPDATE pair SET v = 'x' WHERE a = 1",
        "INSERT INTO parted VALUES (1000, 'us')",
        "UPDATE toasted SET d = 'e' WHERE id = 1",
    ):
        database.execute(statement)
    deployment.assert_published(*tables)
    for table in tables:
        schemas = {read_header(record.header)[2]["schema"] for record in deployment.records(table)}
        assert len(schemas) == (0 if table == "public.nothing" else 1), table


def test_never_publishes_changes_only(database: Database, deploy: Deploy) -> None:
    for statement in ("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "ANALYZE t"):
        database.execute(statement)
    deployment = deploy(snapshot={"mode": "never"})
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (2)")
    deployment.wait_published()
    assert [record.key for record in deployment.records("public.t")] == [b'{"id":2}']
    assert deployment.backfills() == {}
    assert "rows from before the slot are not published until they change" in deployment.bridge.said()
