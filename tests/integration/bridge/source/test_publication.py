"""Publication modes: made, altered, left alone, or refused with a command that works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from cdc.base.errors import SourceRefused
from cdc.bridge.source.catalog import find_tables
from cdc.bridge.source.connect import connect
from cdc.bridge.source.publication import Mode, PublicationState, ensure_publication, inspect_publication
from tests.integration.ops.status.preflighting import findings, mend, troubles
from tests.support.servers import Database

_TABLES = (
    "create table public.a (id int primary key, secret text); create table public.b (id int primary key);"
    "create table public.parted (id int primary key) partition by range (id);"
    "create table public.parted_1 partition of public.parted for values from (0) to (9);"
    "create table public.parent (id int primary key);"
    "create table public.child (primary key (id)) inherits (public.parent);"
)


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with connect({"conninfo": database.dsn}, application_name="test") as connection:
        connection.execute(_TABLES)
        yield connection


def ensure(conn: psycopg.Connection[Any], *patterns: str, mode: Mode = "filtered") -> str:
    tables = find_tables(conn, patterns, [], {})
    return ensure_publication(conn, name="shop", mode=mode, tables=tables)


def state_of(conn: psycopg.Connection[Any]) -> PublicationState:
    state = inspect_publication(conn, "shop")
    assert state is not None
    return state


def published(conn: psycopg.Connection[Any]) -> list[str]:
    query = "select schemaname || '.' || tablename from pg_publication_tables where pubname = 'shop' order by 1"
    return [name for (name,) in conn.execute(query)]


def test_filtered_is_made_kept_and_altered(conn):
    assert ensure(conn, "public.a", "public.parted", "public.parent") == "created"
    assert published(conn) == ["public.a", "public.parent", "public.parted"]
    assert ensure(conn, "public.a", "public.parted", "public.parent") == "kept"
    assert ensure(conn, "public.b", "public.parted") == "altered"
    assert published(conn) == ["public.b", "public.parted"]
    state = state_of(conn)
    assert state.operations == frozenset({"insert", "update", "delete", "truncate"})
    assert state.via_root
    assert not state.all_tables


def test_all_tables(conn):
    assert ensure(conn, "public.a", mode="all_tables") == "created"
    assert ensure(conn, "public.a", mode="all_tables") == "kept"
    assert {"public.a", "public.b", "public.parted"} <= set(published(conn))


def test_disabled_leaves_a_wider_publication_alone(conn):
    conn.execute("create publication shop for table public.a, public.b")
    assert ensure(conn, "public.a", mode="disabled") == "kept"
    assert published(conn) == ["public.a", "public.b"]


def test_names_are_quoted(conn):
    conn.execute('create table public."Sel""ect; --" (id int primary key)')
    tables = find_tables(conn, ["public.Sel*"], [], {})
    assert ensure_publication(conn, name='Odd "name"', mode="filtered", tables=tables) == "created"
    assert ensure_publication(conn, name='Odd "name"', mode="filtered", tables=tables) == "kept"


@pytest.mark.parametrize(
    ("sql", "mode", "reason"),
    [
        pytest.param("", "disabled", "does not exist", id="missing"),
        pytest.param(
            "create publication shop for table public.a with (publish_via_partition_root)",
            "disabled",
            "misses public.parted",
            id="table",
        ),
        pytest.param(
            "create publication shop for table public.a, public.parted with (publish = 'insert, update',"
            " publish_via_partition_root)",
            "filtered",
            "leaves out delete, truncate",
            id="operations",
        ),
        pytest.param(
            "create publication shop for table public.a, public.parted", "filtered", "one by one", id="partitions"
        ),
        pytest.param(
            "create publication shop for all tables with (publish_via_partition_root)",
            "filtered",
            "FOR ALL TABLES",
            id="too wide",
        ),
        pytest.param(
            "create publication shop for table public.a with (publish_via_partition_root)",
            "all_tables",
            "not FOR ALL TABLES",
            id="too narrow",
        ),
    ],
)
def test_unfit_publication_is_refused_until_the_remedy_is_carried_out(database, conn, sql, mode, reason):
    assert_refused_until_mended(database, conn, sql, mode, reason)


@pytest.mark.pg(since=15)
def test_a_column_list_is_not_dropped_behind_the_owners_back(database, conn):
    narrowed = "create publication shop for table public.a (id) with (publish_via_partition_root)"
    assert_refused_until_mended(database, conn, narrowed, "filtered", "would drop the column lists")


def assert_refused_until_mended(
    database: Database, conn: psycopg.Connection[Any], sql: LiteralString, mode: Mode, reason: str
) -> None:
    conn.execute(sql)
    wanted = {"tables": ["public.a", "public.parted"], "publication": "shop", "publication_mode": mode}

    with pytest.raises(SourceRefused, match=reason) as refused:
        ensure(conn, "public.a", "public.parted", mode=mode)
    failure = troubles(findings(database.dsn, **wanted))["publication shop"]

    assert reason in failure.text
    assert failure.remedy == refused.value.remedy
    mend(conn, failure)
    assert troubles(findings(database.dsn, **wanted)) == {}
    ensure(conn, "public.a", "public.parted", mode=mode)
    assert {"public.a", "public.parted"} <= set(published(conn))


@pytest.mark.pg(since=15)
def test_column_list_is_a_warning_with_a_remedy(database, conn):
    conn.execute("create publication shop for table public.a (id), public.b where (id > 5)")
    wanted = {"tables": ["public.a", "public.b"], "publication": "shop", "publication_mode": "disabled"}
    conn.execute("alter table public.a replica identity default")

    warnings = [each for each in findings(database.dsn, **wanted) if "column list or row filter" in each.text]

    assert [each.subject for each in warnings] == ["table public.a", "table public.b"]
    for warning in warnings:
        mend(conn, warning)
    assert not state_of(conn).narrowed


def test_role_without_rights_gets_the_command_for_a_superuser(database, conn):
    role = f"plain_{database.name}"
    conn.execute(f"create role {role} login replication")
    try:
        conn.execute(f"grant select on all tables in schema public to {role}")
        with connect({"conninfo": database.dsn, "user": role}, application_name="test") as plain:
            with pytest.raises(SourceRefused, match="permission denied for database") as refused:
                ensure(plain, "public.a", "public.b")
            conn.execute(refused.value.remedy.encode())
            assert ensure(plain, "public.a", "public.b") == "kept"

            with pytest.raises(SourceRefused, match="must be owner of") as refused:
                ensure(plain, "public.a")
            conn.execute(refused.value.remedy.encode())
            assert ensure(plain, "public.a") == "kept"

            conn.execute("drop publication shop")
            with pytest.raises(SourceRefused) as refused:
                ensure(plain, "public.a", mode="all_tables")
            conn.execute(refused.value.remedy.encode())
            assert ensure(plain, "public.a", mode="all_tables") == "kept"
    finally:
        conn.execute(f"drop owned by {role}")
        conn.execute(f"drop role {role}")
