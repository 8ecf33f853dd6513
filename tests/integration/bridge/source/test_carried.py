"""What a publication carries is read from the catalog alone: as the server's own view says it, beside any lock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import pytest

from cdc.base.table_names import qualified
from cdc.bridge.capture.reading import shape_of
from cdc.bridge.source.catalog import find_others, find_tables, out_of_line, table_info
from cdc.bridge.source.connect import connect
from cdc.bridge.source.membership import memberships
from cdc.bridge.source.publication import inspect_publication
from cdc.bridge.source.rights import secured_tables, table_rights
from tests.support.servers import Database

# A root whose leaves lie in another schema, are partitioned themselves, unlogged, foreign, or are being detached
_TABLES: Final = """
CREATE SCHEMA other; CREATE SCHEMA "Odd.One";
CREATE TABLE a (id int PRIMARY KEY, secret text, twice int GENERATED ALWAYS AS (id * 2) STORED, gone int);
ALTER TABLE a DROP COLUMN gone;
CREATE TABLE b (id int PRIMARY KEY, n int);
CREATE TABLE other.c (id int PRIMARY KEY, n int);
CREATE TABLE "Odd.One"."D; --" (id int PRIMARY KEY);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
CREATE UNLOGGED TABLE fleeting (id int);
CREATE VIEW seen AS SELECT 1 AS one;
CREATE MATERIALIZED VIEW kept AS SELECT 1 AS one;
CREATE SEQUENCE counted;
CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE far (id int) SERVER nowhere;
CREATE TABLE parted (id int, n int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE other.parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20);
CREATE TABLE parted_3 PARTITION OF parted FOR VALUES FROM (20) TO (30) PARTITION BY LIST (id);
CREATE TABLE parted_3_1 PARTITION OF parted_3 FOR VALUES IN (21);
CREATE TABLE other.parted_3_2 PARTITION OF parted_3 FOR VALUES IN (22);
CREATE UNLOGGED TABLE parted_4 PARTITION OF parted FOR VALUES FROM (30) TO (40);
CREATE TABLE other.parted_5 PARTITION OF parted FOR VALUES FROM (40) TO (50);
CREATE TABLE other.hollow (id int) PARTITION BY RANGE (id);
"""
_FOREIGN_LEAF: Final = "CREATE FOREIGN TABLE parted_6 PARTITION OF parted FOR VALUES FROM (50) TO (60) SERVER nowhere"

_SCOPES: Final = (
    "ALL TABLES",
    "",
    "TABLE a, b",
    'TABLE "Odd.One"."D; --", other.c',
    "TABLE parent",
    "TABLE ONLY parent",
    "TABLE parted",
    "TABLE parted_3",
    "TABLE parted, parted_3",
    "TABLE parted, parted_1, b",
    "TABLE parted_1, other.parted_2",
    "TABLE parted_3, parted_3_1, other.parted_5",
    "TABLE other.hollow",
)
_SCOPES_SINCE_15: Final[Mapping[str, Collection[str]]] = {
    "TABLES IN SCHEMA other": (),
    "TABLES IN SCHEMA public": (),
    'TABLES IN SCHEMA public, other, "Odd.One"': (),
    "TABLE parted, TABLES IN SCHEMA other": (),
    "TABLE other.parted_2, b, TABLES IN SCHEMA other": (),
    "TABLE parted_3, TABLES IN SCHEMA other": (),
    "TABLE a (id, secret), b WHERE (n > 5), other.c (id)": ("public.a", "public.b", "other.c"),
    "TABLE a WHERE (id > 5), TABLES IN SCHEMA other": ("public.a",),
    "TABLE b WHERE (n > 5), other.c WHERE (n > 5), TABLES IN SCHEMA other": ("public.b", "other.c"),
    "TABLE parted_1 (id), b (id) WHERE (id > 3)": ("public.parted_1", "public.b"),
}
"""With the tables that they narrow."""

# As it was read before, which waits for locks
_SERVERS_VIEW: Final = """
SELECT schemaname, tablename, to_jsonb(t) -> 'attnames' FROM pg_publication_tables t WHERE pubname = %s
"""


def _make_publications(conn: psycopg.Connection[Any]) -> dict[str, tuple[str, str]]:
    """What each of them is of, and with which options, by name."""
    version = conn.info.server_version
    scopes = [*_SCOPES, *(_SCOPES_SINCE_15 if version >= 150000 else ())]
    options = [f"publish_via_partition_root = {on}" for on in ("true", "false")]
    options += ["publish_generated_columns = stored, publish_via_partition_root = true"] if version >= 180000 else []
    made: dict[str, tuple[str, str]] = {}
    for scope in scopes:
        for option in options:
            name = f"p{len(made)}"
            made[name] = scope, option
            conn.execute(f"CREATE PUBLICATION {name} {f'FOR {scope}' if scope else ''} WITH ({option})".encode())
    return made


def _leave_a_detach_half_done(database: Database) -> None:
    """CONCURRENTLY waits for whoever read the root before; given up there, the partition is neither in nor out."""
    with database.connect(autocommit=False) as reader, database.connect() as conn:
        reader.execute("LOCK TABLE ONLY parted IN ACCESS SHARE MODE")
        conn.execute("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            conn.execute("ALTER TABLE parted DETACH PARTITION other.parted_5 CONCURRENTLY")
        pending = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhdetachpending"
        assert conn.execute(pending).fetchall() == [("other.parted_5",)]


def _view(conn: psycopg.Connection[Any], publication: str) -> dict[str, Sequence[str]]:
    """Columns by table, as the server tells them."""
    rows = conn.execute(_SERVERS_VIEW, (publication,)).fetchall()
    return {qualified(namespace, table): columns for namespace, table, columns in rows}


@contextmanager
def _all_locked(database: Database) -> Iterator[None]:
    """Every table, as by DDL; TRUNCATE locks TOAST tables as well."""
    with database.connect(autocommit=False) as locker:
        locker.execute("TRUNCATE a, b, other.c, parent, child, fleeting, parted_1, other.parted_2, parted_3, parted_4")
        locker.execute(
            'LOCK TABLE ONLY parted, other.parted_5, other.hollow, "Odd.One"."D; --" IN ACCESS EXCLUSIVE MODE'
        )
        yield


@pytest.mark.pg(16, 18)
def test_what_each_kind_of_publication_carries(database: Database) -> None:
    with connect({"conninfo": database.dsn}, application_name="test", lock_timeout_s=1) as conn:
        with database.connect() as admin:
            admin.execute(_TABLES.encode())
            made = _make_publications(admin)
            admin.execute(_FOREIGN_LEAF)  # PostgreSQL may refuse to publish a root that has one already
            _leave_a_detach_half_done(database)
            views = {name: _view(admin, name) for name in made}
        with _all_locked(database):
            for name, (scope, option) in made.items():
                of, state, view = f"{scope}: {option}", inspect_publication(conn, name), views[name]
                assert state is not None
                assert state.tables == view.keys(), of
                assert state.narrowed == set(_SCOPES_SINCE_15.get(scope, ())), of
                columns = {table: frozenset(view[table]) for table in state.narrowed if table in view}
                if conn.info.server_version < 160000 and "public.a" in columns:  # 15 tells of one that it does not send
                    columns["public.a"] -= {"twice"}
                assert state.columns == columns, of
                assert (state.all_tables, state.via_root) == (scope == "ALL TABLES", "root = true" in option)
            assert inspect_publication(conn, "nobodys") is None
            if conn.info.server_version >= 160000:
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    conn.execute(_SERVERS_VIEW, ("p0",))
            with pytest.raises(psycopg.errors.LockNotAvailable):
                conn.execute("SELECT FROM pg_partition_tree('public.parted')")


@pytest.mark.pg(16, 18)
def test_no_look_at_the_catalog_waits_for_a_lock(database: Database) -> None:
    """What ``cdc check`` and the watches ask, of tables and partitions that somebody has locked."""
    database.execute(_TABLES)
    database.execute("ALTER TABLE parted ADD COLUMN body text; INSERT INTO b SELECT 1; INSERT INTO parted VALUES (1)")
    database.execute("CREATE PUBLICATION theirs FOR TABLE b, parted WITH (publish_via_partition_root)")
    with database.connect() as admin:
        has_filters = admin.info.server_version >= 150000
    if has_filters:
        database.execute("ALTER PUBLICATION theirs SET TABLE b WHERE (id > 5), parted WHERE (id > 5)")

    def look(conn: psycopg.Connection[Any]) -> list[object]:
        tables = find_tables(conn, ["*.*"], (), {})
        shapes = [shape_of(conn, each, "theirs").columns for each in tables]
        rights = table_rights(conn, tables), secured_tables(conn, tables), memberships(conn, "theirs", tables)
        others = find_others(conn, ["*.*"], ())
        return [
            tables,
            shapes,
            rights,
            others,
            table_info(conn, "public", "parted", {}),
            inspect_publication(conn, "theirs"),
        ]

    with connect({"conninfo": database.dsn}, application_name="test", lock_timeout_s=1) as conn:
        before = look(conn)
        oids = {each.qualified_name: each.oid for each in find_tables(conn, ["*.*"], (), {})}
        values = out_of_line(conn, find_tables(conn, ["*.*"], (), {}))
        assert set(values.values()) == {False}
        with _all_locked(database):
            assert look(conn) == before
            now = out_of_line(conn, find_tables(conn, ["*.*"], (), {}))
            assert now[oids["public.parted"]] is None, "its partitions were emptied by whoever has not committed yet"
            assert now[oids["public.b"]] is False, "it cannot have such values"
