"""Tables that are not captured: what is said of them can be pasted, and is said once."""

from __future__ import annotations

import psycopg
from structlog.testing import capture_logs

from cdc.base.config import Config
from cdc.bridge.scope.choice import choose, left_out, tell
from cdc.bridge.source.catalog import find_tables
from cdc.ops.status.checks import check_source
from tests.support.servers import Database

SETUP = """
CREATE TABLE kept (id integer PRIMARY KEY);
CREATE TABLE keyless (n integer); INSERT INTO keyless VALUES (1);
CREATE TABLE late (id integer PRIMARY KEY DEFERRABLE); INSERT INTO late VALUES (1);
CREATE TABLE mute (id integer PRIMARY KEY); ALTER TABLE mute REPLICA IDENTITY NOTHING; INSERT INTO mute VALUES (1);
CREATE TABLE fit (id integer PRIMARY KEY); INSERT INTO fit VALUES (1);
"""
KEYLESS = {"public.keyless": "keyless", "public.late": "late", "public.mute": "mute"}


def configuration(database: Database, publication: str) -> Config:
    source = {"dsn": database.dsn, "publication": publication, "publication_mode": "disabled"}
    return Config.model_validate({"name": database.name, "source": source, "kafka": {"bootstrap": "127.0.0.1:1"}})


def test_no_remedy_stops_the_writers_of_a_table(database: Database) -> None:
    """In a publication, a table without a key can be neither updated nor deleted from."""
    database.execute(f"{SETUP}; CREATE PUBLICATION theirs FOR TABLE kept")
    config = configuration(database, "theirs")
    before = {"public.kept": database.execute("SELECT 'kept'::regclass::oid")[0][0]}
    with database.connect() as connection:
        found = choose(connection, config, before=before).left_out
        assert {each.table for each in found} == {*KEYLESS, "public.fit"}
        for each in found:
            assert ("ADD TABLE" in each.remedy) == (each.table == "public.fit")
            connection.execute(each.remedy.encode())
        for table in (*KEYLESS.values(), "fit"):
            column = "n" if table == "keyless" else "id"
            assert connection.execute(f"UPDATE {table} SET {column} = {column} + 1".encode()).rowcount == 1
        mended = choose(connection, config, before=before).left_out
        assert {each.table for each in mended} == set(KEYLESS), "now the publication is all that they lack"
        for each in mended:
            connection.execute(each.remedy.encode())
        assert choose(connection, config, before=before).left_out == ()


def test_a_check_of_tables_without_keys_leaves_the_publication_out(database: Database) -> None:
    database.execute("CREATE TABLE keyless (n integer); INSERT INTO keyless VALUES (1)")
    findings, _ = check_source(configuration(database, "nobodys"))
    failed = [each for each in findings if each.level == "FAIL" and each.subject.startswith(("table", "publication"))]
    assert [each.subject for each in failed] == ["table public.keyless"]
    assert not [each for each in findings if "PUBLICATION" in each.remedy]


def test_several_reasons_are_told_once(database: Database) -> None:
    """The bridge looks every ten seconds."""
    role = f"nobody_{database.name}"
    database.execute(
        f"CREATE TABLE kept (id integer PRIMARY KEY); CREATE TABLE shut (id integer PRIMARY KEY); "
        f"CREATE ROLE {role} LOGIN"
    )
    try:
        database.execute(f"GRANT SELECT ON kept TO {role}; CREATE PUBLICATION theirs FOR TABLE kept")
        config = configuration(database, "theirs")
        told: dict[str, str] = {}
        with psycopg.connect(database.dsn, user=role, autocommit=True) as connection, capture_logs() as said:
            for _ in range(3):
                found = find_tables(connection, config.source.tables, (), {})
                tell(left_out(connection, config, found), told)
        assert [each["table"] for each in said] == ["public.shut"] * 2
        assert f"may not be read by role {role}" in said[0]["reason"]
        assert "is not in publication theirs" in said[1]["reason"]
    finally:
        database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
