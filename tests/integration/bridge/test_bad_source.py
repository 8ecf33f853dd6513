"""What is wrong with PostgreSQL is said by name, with the command that mends it; it helps, and nothing is lost."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from cdc.base.errors import ConfigError, GapError, SourceRefused
from cdc.cli.cli import app
from cdc.lab.stack import Kafka, Postgres, PostgresServer
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.servers import Database, fresh_database

REFUSED = SourceRefused.exit_code


def refusal(deployment: Deployment, code: int = REFUSED) -> str:
    """What the bridge says when it is started now."""
    deployment.bridge.start()
    return deployment.bridge.refusal(code)


def remedy(said: str) -> str:
    """The command after ``remedy:``, as a person would copy it; comments go."""
    match = re.search(r"remedy: (.*)", said)
    assert match, said
    return match[1].split("  --")[0]


@pytest.fixture
def items(database: Database, deploy: Deploy) -> Deployment:
    """Not started yet."""
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, note text); INSERT INTO items VALUES (0, 'before')")
    return deploy()


@pytest.fixture(scope="module")
def strict_server() -> Iterator[PostgresServer]:
    """A server that asks role ``cautious`` for its password, and whose wal_level is too low."""
    with PostgresServer.open(settings={"wal_level": "replica", "max_wal_senders": "0"}, fsync=False) as server:
        rules = server.directory / "data" / "pg_hba.conf"
        rules.write_text("host all cautious 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE ROLE cautious LOGIN REPLICATION SUPERUSER PASSWORD 'right'")
            admin.execute("CREATE TABLE items (id integer PRIMARY KEY)")
            admin.execute("SELECT pg_reload_conf()")
        yield server


def test_password_and_wal_level(strict_server: PostgresServer, kafka: Kafka, tmp_path: Path) -> None:
    source = Database("postgres", strict_server.dsn())
    with deployed(source, kafka.bootstrap, source, tmp_path) as deployment:
        own = deployment.settings["source"]
        own["dsn"] = f"host=127.0.0.1 port={strict_server.port} dbname=postgres user=cautious"
        own["password"] = "wr0ng-secret"
        deployment.write()
        said = refusal(deployment)
        assert f"cautious@127.0.0.1:{strict_server.port}/postgres" in said
        assert "password authentication failed" in said
        assert "source.password" in remedy(said)
        assert "wr0ng-secret" not in said
        own["password"] = "right"
        deployment.write()
        said = refusal(deployment)
        assert deployment.slot() in said
        assert remedy(said) == "ALTER SYSTEM SET wal_level = logical;"


def test_a_server_that_is_not_there_is_tried_again(items: Deployment) -> None:
    items.settings["source"]["dsn"] = "host=127.0.0.1 port=1 dbname=shop user=cdc connect_timeout=2"
    items.write()
    items.bridge.start()
    items.bridge.wait_said("trying again")
    assert "cdc@127.0.0.1:1/shop" in items.bridge.said()
    items.bridge.stop()


def test_a_database_that_does_not_exist(items: Deployment) -> None:
    items.settings["source"]["dsn"] = items.source.dsn.replace(items.source.name, "no_such_database")
    items.write()
    said = refusal(items)
    assert 'database "no_such_database" does not exist' in said
    assert "source.dsn" in remedy(said)


def test_a_role_that_may_not_replicate(items: Deployment) -> None:
    source, role = items.source, f"plain_{items.name}"
    source.execute(
        f"CREATE ROLE {role} LOGIN; ALTER TABLE items OWNER TO {role}; GRANT CREATE ON DATABASE {source.name} TO {role}"
    )
    try:
        items.settings["source"]["dsn"] = source.dsn.replace("postgres@", f"{role}@")
        items.write()
        said = refusal(items)
        assert role in said
        source.execute(remedy(said))
        items.start_bridge()
        source.execute("UPDATE items SET note = 'after'")
        items.assert_published("public.items")
        items.bridge.stop()
    finally:
        items.bridge.kill()
        source.execute(
            f"DROP PUBLICATION IF EXISTS {items.slot()};"
            f"REASSIGN OWNED BY {role} TO postgres; DROP OWNED BY {role}; DROP ROLE {role}"
        )


def test_a_publication_that_misses_a_table(items: Deployment) -> None:
    source = items.source
    source.execute("CREATE TABLE other (id integer PRIMARY KEY)")
    items.settings["source"]["publication_mode"] = "disabled"
    items.write()
    said = refusal(items)
    assert "publication_mode" in said
    source.execute(f"CREATE PUBLICATION {items.slot()} FOR TABLE items")
    said = refusal(items)
    assert f"publication {items.slot()} misses public.other" in said
    source.execute(remedy(said))
    items.start_bridge()
    source.execute("INSERT INTO other VALUES (1); UPDATE items SET note = 'after'")
    items.assert_published("public.items", "public.other")
    items.bridge.stop()


def test_tables_without_a_key(items: Deployment) -> None:
    """A pattern leaves them out, at every start; a name is refused at the first, and left out later."""
    source = items.source
    source.execute("CREATE TABLE keyless (n integer); CREATE TABLE nearly (a integer NOT NULL UNIQUE, b text)")
    items.settings["source"]["tables"] = ["public.*", "public.nearly"]
    items.write()
    said = refusal(items)
    assert "public.keyless" not in said
    assert "table public.nearly has no primary key" in said
    assert "source.exclude: [public.nearly]" in said
    source.execute(remedy(said))  # ALTER TABLE "public"."nearly" REPLICA IDENTITY USING INDEX "nearly_a_key";
    items.start_bridge()
    assert "table public.keyless has no primary key" in items.bridge.said()
    source.execute(
        "INSERT INTO keyless VALUES (1); INSERT INTO nearly VALUES (1, 'x'); UPDATE items SET note = 'after'"
    )
    items.assert_published("public.items", "public.nearly")
    items.bridge.stop()

    source.execute("ALTER TABLE nearly REPLICA IDENTITY DEFAULT; INSERT INTO nearly VALUES (2, 'y')")
    items.start_bridge()
    told = next(line for line in items.bridge.said().splitlines() if "public.nearly has no primary key" in line)
    assert '"level": "error"' in told
    source.execute("UPDATE items SET note = 'still here'")
    items.assert_published("public.items")
    status = CliRunner().invoke(app, ["status", "-c", str(items.config)])
    assert status.exit_code != 0, status.output
    lines, _, problems = status.output.partition("PROBLEM")
    assert "left out table public.keyless has no primary key" in lines
    assert "source: table public.nearly has no primary key" in problems
    assert "table public.nearly is no longer captured" in problems
    assert "public.keyless" not in problems

    source.execute("ALTER TABLE nearly ADD PRIMARY KEY (a); INSERT INTO nearly VALUES (3, 'z')")
    items.bridge.signal(signal.SIGHUP)
    items.bridge.wait_said('"tables": ["public.nearly"]')
    items.wait_equal("public.items", "public.nearly")
    items.bridge.stop()


def test_rows_from_before_a_table_had_a_key(database: Database, deploy: Deploy) -> None:
    """The WAL has them without a key for ever: they are no reason to stop, and the table's backfill brings them."""
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    deployment = deploy(source={"publication_mode": "all_tables"})
    deployment.start_bridge()
    database.execute(
        "INSERT INTO items VALUES (1); CREATE TABLE sudden (n integer); INSERT INTO sudden VALUES (1), (2)"
    )
    database.execute("INSERT INTO items VALUES (2)")
    deployment.bridge.wait_said("table public.sudden has no primary key")
    deployment.assert_published("public.items")
    told = next(line for line in deployment.bridge.said().splitlines() if "public.sudden has no" in line)
    deployment.bridge.kill()
    database.execute("INSERT INTO sudden VALUES (3)")
    command = json.loads(told)["remedy"]
    assert "ADD COLUMN row_id" in command
    database.execute(command)
    database.execute("INSERT INTO sudden VALUES (4); INSERT INTO items VALUES (3)")
    deployment.start_bridge()
    database.execute("UPDATE sudden SET n = 40 WHERE n = 4")
    deployment.wait_equal("public.items", "public.sudden")

    database.execute("CREATE TABLE other (n integer); INSERT INTO other VALUES (1)")  # and while it runs
    deployment.bridge.wait_said("table public.other has no primary key")
    database.execute("ALTER TABLE other ADD PRIMARY KEY (n); INSERT INTO other VALUES (2)")
    deployment.bridge.signal(signal.SIGHUP)
    deployment.wait_equal("public.items", "public.sudden", "public.other")
    deployment.bridge.stop()


def test_a_slot_of_another_database_or_of_nobody(items: Deployment, postgres: Postgres) -> None:
    with fresh_database(postgres) as other:
        other.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [items.slot()])
        said = refusal(items)
        assert items.slot() in said
        assert other.name in said
        assert "source.slot" in remedy(said)
    items.start_bridge()
    items.source.execute("UPDATE items SET note = 'after'")
    items.assert_published("public.items")
    items.bridge.stop()
    items.source.execute("SELECT pg_drop_replication_slot(%s)", [items.slot()])
    said = refusal(items, GapError.exit_code)
    assert "is gone" in said
    assert items.slot() in said


def test_a_topic_name_that_is_too_long(items: Deployment) -> None:
    schema, table = "ü" * 31, "é" * 31
    items.source.execute(f'CREATE SCHEMA "{schema}"; CREATE TABLE "{schema}"."{table}" (id integer PRIMARY KEY)')
    items.settings["source"]["tables"] = ["public.*", f"{schema}.*"]
    items.write()
    said = refusal(items, ConfigError.exit_code)
    assert f"{schema}.{table}" in said
    assert "249" in said
    assert "topics.names" in remedy(said)
    items.settings["topics"]["names"] = {f"{schema}.{table}": f"short-{items.name}"}
    items.write()
    items.start_bridge()
    items.source.execute(f'INSERT INTO "{schema}"."{table}" VALUES (1)')
    items.assert_published(f"{schema}.{table}")
    items.bridge.stop()


def test_a_configuration_with_a_mistake(tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text(
        "name: shop\nsource: {dsn: 'dbname=shop'}\nkafka: {bootstrap: 'localhost:9092'}\ntopics: {partition: 3}\n"
    )
    process = CdcProcess("run", config, tmp_path / "log")
    process.start()
    said = process.refusal(ConfigError.exit_code)
    assert "wrong.yaml" in said
    assert "topics.partition" in said
    assert "partitions" in said
