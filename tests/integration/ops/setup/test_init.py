"""``cdc init`` without a terminal: what it finds, writes, refuses, and never does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml
from confluent_kafka.admin import NewTopic
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner, Result

from cdc.base.config import load
from cdc.base.errors import CdcError
from cdc.bridge.source.connect import connect_error
from cdc.cli.cli import app
from cdc.kafka.brokers import BrokerAdmin
from cdc.lab.stack import Kafka, PostgresServer
from cdc.ops.setup.seen import without_file
from tests.support.printed_steps import printed_steps
from tests.support.servers import Database, OwnStack
from tests.support.topic_settings import create_topic

NOBODY = "host=127.0.0.1 port=1 dbname=shop user=cdc"
Init: TypeAlias = Callable[..., Result]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.yaml"


@pytest.fixture
def init(path: Path) -> Init:
    def run(*words: str) -> Result:
        return CliRunner().invoke(app, ["init", "-c", str(path), *words])

    return run


@pytest.fixture
def both(database: Database, kafka: Kafka) -> list[str]:
    """Options that lead to servers."""
    return ["--source", database.dsn, "--kafka", kafka.bootstrap, "--name", database.name]


def refusal(result: Result, path: Path) -> str:
    """What an error says; nothing was written."""
    assert isinstance(result.exception, CdcError), result.output
    assert not path.exists()
    assert list(path.parent.iterdir()) == []
    return str(result.exception)


def test_without_a_terminal_it_says_what_is_missing(init: Init, path: Path) -> None:
    assert "needs --source and --kafka" in refusal(init(), path)
    assert "add --kafka …" in refusal(init("--source", NOBODY), path)
    assert "add --source …" in refusal(init("--kafka", "127.0.0.1:1", "--yes"), path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--source", "host=db dbname=shop"], "--source names no user"),
        (["--source", "hopst=db password=hunter2"], "--source: invalid connection string"),
        (["--source", f"{NOBODY} sslpassword=hunter2"], "passphrase"),
        (["--replica", "postgresql://db/shop"], "--replica names no user"),
        (["--kafka", "a b"], "--kafka: kafka.bootstrap: write host:port"),
        (["--name", "my shop"], "--name: name: write 1 to 48 letters"),
        (["--tables", "orders"], "--tables: source.tables[0]: write schema.table"),
        (["--exclude", "orders"], "--exclude: source.exclude[0]: write schema.table"),
        (["-X", "security.protocol"], "-X security.protocol has no value"),
        (["-X", "sasl.password=hunter2"], "CDC_KAFKA__PASSWORD"),
        (["-X", "ssl.key.password=hunter2"], "CDC_KAFKA__OPTIONS="),
        (["-X", "acks=1"], '"acks" cannot be set here'),
    ],
)
def test_bad_input_is_named(init: Init, path: Path, words: list[str], said: str) -> None:
    text = refusal(init("--source", NOBODY, "--kafka", "127.0.0.1:1", "--offline", *words), path)
    assert said in text
    assert "hunter2" not in text


def test_no_password_is_written_or_shown(init: Init, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_KAFKA__PASSWORD", "third")
    words = ["-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=cdc"]
    dsns = ["--source", "postgresql://cdc:hunter2@db/shop", "--replica", "host=r user=r dbname=r password=second"]
    done = init(*dsns, "--kafka", "k:9092", *words, "--offline")
    assert done.exit_code == 0, done.output
    written = path.read_text()
    assert not [each for each in ("hunter2", "second", "third") if each in written + done.output]
    loaded = load(path, {})
    assert loaded.source.dsn is not None
    assert loaded.source.dsn.get_secret_value() == "user=cdc dbname=shop host=db"
    assert loaded.kafka.options["sasl.username"] == "cdc"


def test_a_file_is_not_replaced_unless_told(init: Init, path: Path) -> None:
    path.write_text("precious\n")
    offline = ["--source", NOBODY, "--kafka", "127.0.0.1:1", "--offline", "--yes"]
    assert "already exists" in str(init(*offline).exception)
    assert path.read_text() == "precious\n"
    assert init(*offline, "--overwrite").exit_code == 0
    assert load(path, {}).name == "shop"
    assert list(path.parent.iterdir()) == [path]


def test_a_server_that_is_away_is_named(init: Init, path: Path, both: list[str], database: Database) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    assert "cannot reach PostgreSQL as cdc@127.0.0.1:1/shop" in refusal(init(*both, "--source", NOBODY), path)
    away = init(*both, "--kafka", "127.0.0.1:1")
    assert "cannot reach Kafka" in refusal(away, path)
    assert "cannot reach the replica" in refusal(init(*both, "--replica", NOBODY), path)
    absent = make_conninfo(database.dsn, user="nobody_here")
    assert "add: --admin user=postgres" in refusal(init(*both, "--source", absent), path)


def test_a_remedy_asks_for_no_key_of_a_file_that_is_not_there_yet(
    init: Init, path: Path, both: list[str], database: Database
) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    away = (init(*both, "--source", NOBODY), init(*both, "--kafka", "127.0.0.1:1"), init(*both, "--replica", NOBODY))
    for each, option in zip(away, ("--source", "--kafka", "--replica"), strict=True):
        text = refusal(each, path)
        assert f"{option} right" in text or f"{option}'s host and port right" in text
        assert not [key for key in ("source.", "sink.", "kafka.") if key in text]


@pytest.mark.parametrize(
    "said",
    [
        'connection to server at "db", port 5432 failed: FATAL: password authentication failed for user "cdc"',
        'connection to server at "db", port 5432 failed: fe_sendauth: no password supplied',
    ],
)
def test_a_password_is_asked_for_in_a_variable(said: str) -> None:
    """The embedded server trusts everybody, so these are libpq's words by themselves."""
    remedy = without_file(connect_error(said, {"conninfo": "host=db user=cdc dbname=shop"}).remedy)
    assert remedy == "put the right password into CDC_SOURCE__PASSWORD, PGPASSWORD or ~/.pgpass"


def test_a_database_in_which_nothing_can_be_captured(
    init: Init, path: Path, both: list[str], database: Database
) -> None:
    assert "there is no table" in refusal(init(*both), path)
    database.execute(
        "CREATE TABLE a (x int); CREATE UNLOGGED TABLE b (id int PRIMARY KEY);"
        "CREATE TABLE c (id int PRIMARY KEY); ALTER TABLE c REPLICA IDENTITY NOTHING;"
        "CREATE TABLE d (id int PRIMARY KEY DEFERRABLE); CREATE VIEW e AS SELECT 1"
    )
    text = refusal(init(*both), path)
    for said in (
        "table public.a has no primary key",
        "relation public.b is an unlogged table",
        "table public.c has REPLICA IDENTITY NOTHING",
        "table public.d has a DEFERRABLE primary key",
        'ALTER TABLE "public"."c" REPLICA IDENTITY DEFAULT;',
    ):
        assert said in text
    assert "nothing can be captured in public.z*: there is no table" in refusal(
        init(*both, "--tables", "public.z*"), path
    )


def test_tables_that_cannot_be_captured_are_told_of(
    init: Init, path: Path, both: list[str], database: Database
) -> None:
    database.execute(
        "CREATE TABLE good (id int PRIMARY KEY); CREATE TABLE plain (x int); CREATE UNLOGGED TABLE fast (id int);"
        "CREATE TABLE mute (id int PRIMARY KEY); ALTER TABLE mute REPLICA IDENTITY NOTHING;"
        'CREATE TABLE "line\nfeed: [x]" (x int); CREATE SCHEMA "a.b"; CREATE TABLE "a.b"."*: c" (id int PRIMARY KEY);'
        "CREATE SCHEMA keyless; CREATE TABLE keyless.t (x int)"
    )
    done = init(*both)
    assert done.exit_code == 0, done.output
    for said in ("public.plain: has no primary key", "public.mute: has REPLICA IDENTITY NOTHING", "public.fast: is an"):
        assert said in done.output
        assert said in path.read_text()
    assert "it is left out" in done.output
    loaded = load(path, {})
    assert loaded.source.tables == ('"a.b".*', "public.*")
    assert "line\\nfeed" in path.read_text()
    assert yaml.safe_load(path.read_text())["name"] == database.name
    grants = CliRunner().invoke(app, ["grants", "source", "-c", str(path)])
    published = next(line for line in grants.output.splitlines() if line.startswith("CREATE PUBLICATION"))
    assert '"good"' in published
    assert '"plain"' not in published
    assert '"public"."plain"' not in grants.output, "nobody reads it until it has a key"


def test_a_superuser_needs_no_grants(
    init: Init, path: Path, both: list[str], database: Database, replica: Database
) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    done = init(*both, "--replica", replica.dsn)
    verbs = [line.split()[1] for line in printed_steps(done.output)]
    assert verbs == ["check", "run", "sink", "status"]
    assert load(path, {}).source.publication_mode == "filtered"


def test_the_source_is_no_replica(init: Init, path: Path, both: list[str], database: Database) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    assert "--replica is the source database itself" in refusal(init(*both, "--replica", database.dsn), path)


def test_topics_of_that_name_are_told_of(
    init: Init, path: Path, both: list[str], database: Database, kafka: Kafka
) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    admin = BrokerAdmin({"bootstrap.servers": kafka.bootstrap})
    for topic, said in (
        (f"{database.name}.public.items", f"topics that begin with {database.name}. already exist"),
        (f"{database.name}.__progress", "has published here before, 2 topics"),
    ):
        create_topic(admin, NewTopic(topic, 1, 1))
        done = init(*both, "--overwrite")
        assert said in done.output, done.output
    assert "or newer, 1 broker" in done.output


def test_a_source_without_logical_wal(init: Init, path: Path, own_stack: OwnStack, kafka: Kafka) -> None:
    server: PostgresServer = own_stack.postgres(settings={"wal_level": "replica"})
    shop = Database("postgres", server.dsn())
    shop.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    done = init("--source", shop.dsn, "--kafka", kafka.bootstrap)
    assert "wal_level: is replica" in done.output
    assert "#     ALTER SYSTEM SET wal_level = logical;  -- then restart PostgreSQL" in done.output.splitlines()
