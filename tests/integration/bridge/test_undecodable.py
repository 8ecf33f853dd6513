"""The server fails to decode its own WAL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from cdc.lab.stack import Kafka
from tests.support.deployment import Deploy, deployed
from tests.support.names import unique
from tests.support.servers import Database, Servers, drop_slots

TAKEN_BACK = (
    "SAVEPOINT a",
    "ALTER TABLE t ADD COLUMN c text DEFAULT 'c'",
    "ROLLBACK TO a",
    "UPDATE t SET n = 1",
    "ALTER TABLE t DROP COLUMN b",
    "UPDATE t SET n = 2",
    "ALTER TABLE t ADD COLUMN b int",
    "UPDATE t SET b = id",
)
"""PostgreSQL 14 to 18 cannot stream this while it runs; each step is needed for that."""


@pytest.mark.pg(16, 18)
def test_a_transaction_that_the_server_cannot_stream_is_sent_when_it_ends(database: Database, deploy: Deploy) -> None:
    """Every session ended with "could not map filenumber … to relation OID", for ever, and WAL piled up."""
    database.execute(f'ALTER DATABASE "{database.name}" SET logical_decoding_work_mem = "64kB"')
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, b text)")
    database.execute("INSERT INTO t SELECT i, 0, md5(i::text) FROM generate_series(1, 300) i")
    deployment = deploy(source={"streaming": True})
    deployment.start_bridge()
    deployment.wait_backfilled()
    deployment.bridge.stop()
    with database.connect(autocommit=False) as writer:
        for statement in TAKEN_BACK:
            writer.execute(statement.encode())
        # The server has no trouble when it streams one statement after the other, nor once the transaction has ended
        deployment.start_bridge()
        deployment.bridge.wait_said("from here on it sends them when they end")
        writer.commit()
    deployment.assert_published("public.t")
    warned = [json.loads(line) for line in deployment.bridge.said().splitlines() if "when they end" in line]
    assert len(warned) == 1
    assert "could not map file" in warned[0]["error"]
    assert "source.streaming: false" in warned[0]["remedy"]


@pytest.fixture
def windows(servers: Servers) -> Iterator[Database]:
    """A database in WIN1252, which takes five bytes that are no characters."""
    server, name = servers.of(16), unique("windows_")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        make = "CREATE DATABASE {} ENCODING 'WIN1252' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        admin.execute(sql.SQL(make).format(sql.Identifier(name)))
    try:
        yield Database(name, server.dsn(name))
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            drop_slots(admin, name)
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_a_value_that_has_no_form_in_utf_8_stops_the_bridge_with_what_to_do(
    windows: Database, replica: Database, kafka: Kafka, tmp_path: Path
) -> None:
    """The stream ended at it for ever, two times a second, without a word of what to do."""
    windows.execute("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'whole')")
    with deployed(windows, kafka.bootstrap, replica, tmp_path, {"source": {"on_gap": "rebackfill"}}) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled()
        raw = psycopg.conninfo.make_conninfo(windows.dsn, client_encoding="WIN1252")
        with psycopg.connect(raw, autocommit=True) as connection:
            connection.execute(b"INSERT INTO t VALUES (2, '\x81')")
        assert deployment.bridge.wait(60) == 3, deployment.bridge.tail()
        said = deployment.bridge.said()
        assert 'has no equivalent in encoding "UTF8"' in said
        assert "correct the row first" in said
        windows.execute("UPDATE t SET body = 'mended' WHERE id = 2; DELETE FROM t WHERE id = 1")
        drop = next(line for line in said.splitlines() if "pg_drop_replication_slot" in line)
        windows.execute(drop[drop.index("SELECT pg_drop") :].split(";")[0])
        deployment.start_bridge()
        deployment.wait_equal("public.t")
