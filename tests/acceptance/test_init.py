"""From an empty folder to a mirrored table: ``cdc init``, and then nothing but the commands that it prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.base.config import load
from cdc.lab.stack import Kafka, Postgres
from cdc.lab.stack.binaries import find_binaries
from tests.support.printed_steps import paste, printed_steps, running, shell
from tests.support.servers import Database, drop_slots, fresh_database
from tests.support.terminal import answer
from tests.support.waiting import eventually

PLAIN = "public.items"
ODD = '"Odd schema"."Order\'s ""list"""'
PASSWORD = "Correct Horse's"


@pytest.fixture
def absent_replica(replica: Database) -> Iterator[Database]:
    """A database that is not there yet, on the replica's server."""
    absent = Database(f"new {replica.name}", make_conninfo(replica.dsn, dbname=f"new {replica.name}"))
    yield absent
    with replica.connect() as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(absent.name)))


@pytest.fixture
def odd_source(postgres: Postgres) -> Iterator[Database]:
    """A database whose name, schemas, tables and columns all need quoting."""
    with fresh_database(postgres) as plain:
        name = f"it's {plain.name}"
        with plain.connect() as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        odd = Database(name, make_conninfo(plain.dsn, dbname=name))
        try:
            yield odd
        finally:
            with plain.connect() as admin:
                drop_slots(admin, name)
                admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def fill(source: Database) -> None:
    source.execute(
        "CREATE TABLE items (id integer PRIMARY KEY, name text, price numeric);"
        "INSERT INTO items SELECT i, 'item ' || i, i * 1.5 FROM generate_series(1, 500) i;"
        "CREATE TABLE notes (note text); INSERT INTO notes VALUES ('no key'); CREATE UNLOGGED TABLE scratch (id int);"
        'CREATE SCHEMA "Odd schema";'
        f'CREATE TABLE {ODD} ("The Id" integer, part text, "what? ÄÖ" jsonb, PRIMARY KEY ("The Id", part));'
        f"INSERT INTO {ODD} SELECT i, 'p', '{{}}' FROM generate_series(1, 50) i"
    )


def rows(database: Database, table: str) -> list[tuple[str]]:
    try:
        return database.execute(f"SELECT to_jsonb(t)::text FROM {table} t ORDER BY 1")
    except psycopg.errors.UndefinedTable:
        return []
    except psycopg.errors.InvalidSchemaName:
        return []


def drop_role(role: str, *databases: Database) -> None:
    quoted = sql.Identifier(role)
    for database in databases:
        with database.connect() as admin:
            admin.execute(sql.SQL("DROP OWNED BY {}").format(quoted))
            admin.execute(sql.SQL("DROP ROLE {}").format(quoted))


def test_what_init_prints_mirrors_the_tables(
    odd_source: Database, absent_replica: Database, kafka: Kafka, tmp_path: Path
) -> None:
    """Neither role exists before, nor the replica's database; every name that can needs quoting."""
    replica, unique = absent_replica, absent_replica.name.removeprefix("new ")
    fill(odd_source)
    psql = find_binaries(16)
    environment = shell(psql.home / psql.programs)
    capture, mirror = f"Bridge {unique}", f"Mirror {unique}"
    name = f"i{unique}"
    options = {
        "--source": make_conninfo(odd_source.dsn, user=capture),
        "--replica": make_conninfo(replica.dsn, user=mirror),
        "--kafka": kafka.bootstrap,
        "--name": name,
        "--admin": "user=postgres",
        "-c": "my shop.yaml",
    }
    words = [word for pair in options.items() for word in pair]
    printed = paste(shlex.join(["cdc", "init", *words]), tmp_path, environment)
    assert "public.notes" in printed
    assert "is an unlogged table" in printed
    assert str(replica.name) in (tmp_path / "my shop.yaml").read_text()
    with ExitStack() as stack:
        stack.callback(drop_role, mirror, replica)
        stack.callback(drop_role, capture, odd_source)
        started = []
        for line in printed_steps(printed):
            if line.startswith(("cdc run ", "cdc sink ")):
                stack.enter_context(running(line, tmp_path, environment))
                started.append(line)
            elif line.startswith("cdc status "):
                eventually(lambda: rows(odd_source, ODD) == rows(replica, ODD), 60)
                eventually(lambda: rows(odd_source, PLAIN) == rows(replica, PLAIN), 60)
                paste(line, tmp_path, environment)
            else:
                paste(line, tmp_path, environment, typed=f"{PASSWORD}\n{PASSWORD}\n")
        assert len(started) == 2
        odd_source.execute(
            "UPDATE items SET price = 1 WHERE id < 10; DELETE FROM items WHERE id > 490; INSERT INTO items VALUES (0);"
            f"UPDATE {ODD} SET part = 'moved', \"what? ÄÖ\" = '[1]' WHERE \"The Id\" = 7;"
            "UPDATE notes SET note = 'still possible'"
        )
        for table in (PLAIN, ODD):
            eventually(lambda table=table: rows(odd_source, table) == rows(replica, table), 60)  # type: ignore[misc]  # mypy does not type a lambda's default
        assert len(rows(replica, PLAIN)) == 491


def test_it_asks_at_a_terminal(odd_source: Database, replica: Database, kafka: Kafka, tmp_path: Path) -> None:
    """A server that is away is asked for again; tables are chosen from what is there."""
    fill(odd_source)
    code, shown = answer(
        ["cdc", "init", "-c", "shop.yaml"],
        tmp_path,
        shell(),
        [
            ("Source, as a libpq", "host=127.0.0.1 port=1 user=cdc dbname=shop"),
            ("Name, the first part", f"a{replica.name}"),
            ("Kafka (host:port", kafka.bootstrap),
            ("Replica, as a connection string", replica.dsn),
            ("Connection refused", ""),
            ("Source, as a libpq", f"{odd_source.dsn} password=hunter2"),
            ("Tables to capture", "public.*"),
        ],
    )
    assert code == 0, shown
    written = load(tmp_path / "shop.yaml", {})
    assert (written.name, written.source.tables) == (f"a{replica.name}", ("public.*",))
    assert written.sink is not None
    assert "[Odd schema.*, public.*]" in shown
    assert "hunter2" not in (tmp_path / "shop.yaml").read_text()
    assert shown.count("hunter2") == 1, "only as it was typed"
    assert "set CDC_SOURCE__PASSWORD" in shown
    assert printed_steps(shown)[0] == "cdc check -c shop.yaml"


def test_no_means_that_nothing_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "cdc.yaml").write_text("precious\n")
    code, shown = answer(["cdc", "init"], tmp_path, shell(), [("Replace it? [y/N]", "n")])
    assert code == 2, shown
    assert (tmp_path / "cdc.yaml").read_text() == "precious\n"


def test_an_end_of_input_ends_it(tmp_path: Path) -> None:
    code, shown = answer(["cdc", "init"], tmp_path, shell(), [("Source, as a libpq", "\x04")])
    assert code == 130, shown
    assert list(tmp_path.iterdir()) == []
