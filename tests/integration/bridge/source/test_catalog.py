"""Which tables are found, and by which columns their rows are told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest

from cdc.bridge.source.catalog import find_others, find_tables, table_info, unmatched
from cdc.bridge.source.connect import connect
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import ReplicaIdentity
from tests.integration.ops.status.preflighting import findings, mend, troubles
from tests.support.servers import Database


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with connect({"conninfo": database.dsn}, application_name="test") as connection:
        connection.execute("set search_path = public")
        yield connection


def info_of(conn: psycopg.Connection[Any], name: str, keys: Mapping[str, Sequence[str]] | None = None) -> TableInfo:
    info = table_info(conn, "public", name, keys or {})
    assert info is not None
    return info


def names(found: Sequence[Any]) -> list[str]:
    return [each.qualified_name for each in found]


def test_patterns_choose_ordinary_tables_and_roots(conn):
    conn.execute("create schema sales")
    conn.execute("create schema cdc")
    conn.execute("create table public.a (id int primary key)")
    conn.execute("create table public.audit_log (id int primary key)")
    conn.execute('create table sales."Odd.Name" (id int primary key)')
    conn.execute("create table cdc.cut (id int primary key)")
    conn.execute("create table public.parted (id int primary key) partition by range (id)")
    conn.execute("create table public.parted_1 partition of public.parted for values from (0) to (9)")
    conn.execute("create unlogged table public.scratch (id int primary key)")
    conn.execute("create view public.seen as select 1 as id")

    assert names(find_tables(conn, ["*.*"], [], {})) == [
        "public.a",
        "public.audit_log",
        "public.parted",
        "sales.Odd.Name",
    ]
    assert names(find_tables(conn, ["public.*"], ["public.audit*", "*.parted"], {})) == ["public.a"]
    assert names(find_tables(conn, ["sales.Odd.Name"], [], {})) == ["sales.Odd.Name"]
    assert names(find_tables(conn, ["public.A", "publi.*", "a"], [], {})) == []
    assert unmatched(["public.a", "public.b", "x.*"], find_tables(conn, ["public.*"], [], {})) == ("public.b", "x.*")


def test_other_relations_are_named_with_what_they_are(conn):
    conn.execute("create view public.seen as select 1 as id")
    conn.execute("create materialized view public.kept as select 1 as id")
    conn.execute("create unlogged table public.scratch (id int primary key)")
    conn.execute("create table public.parted (id int primary key) partition by range (id)")
    conn.execute("create table public.parted_1 partition of public.parted for values from (0) to (9)")

    found = find_others(conn, ["public.*", "public.seen"], [])

    assert [(each.name, each.what, each.explicit) for each in found] == [
        ("kept", "a materialized view", False),
        ("parted_1", "a partition", False),
        ("scratch", "an unlogged table", False),
        ("seen", "a view", True),
    ]
    assert found[1].partition_root == "public.parted"


def test_key_is_the_primary_key_in_its_own_order(conn):
    conn.execute("create table t (b text, note text, a int, primary key (a, b) include (note))")

    info = info_of(conn, "t")

    assert (info.key, info.key_source) == (("a", "b"), "primary key")
    assert info.columns == ("b", "note", "a")
    assert table_info(conn, "public", "none", {}) is None


@pytest.mark.parametrize(
    ("identity", "key", "source"),
    [
        ("default", ("id",), "primary key"),
        ("full", ("id",), "primary key"),
        ("using index covering", ("id",), "primary key"),
        ("using index other", ("code", "region"), "replica identity index"),
        ("nothing", (), "none"),
    ],
)
def test_key_is_what_the_old_row_carries(conn, identity, key, source):
    conn.execute("create table t (id int primary key, region int not null, code text not null)")
    conn.execute("create unique index covering on t (region, id)")
    conn.execute("create unique index other on t (code, region)")
    conn.execute(f"alter table t replica identity {identity}")

    info = info_of(conn, "t")

    assert (info.key, info.key_source) == (key, source)


def test_configured_key_needs_full_and_a_constraint_to_be_safe(conn):
    conn.execute("create table t (id int, region int not null)")
    keys = {"public.t": ("region", "id")}
    assert info_of(conn, "t", keys).key == ()

    conn.execute("alter table t replica identity full")
    info = info_of(conn, "t", keys)
    assert (info.key, info.key_source, info.key_is_enforced) == (("region", "id"), "configured", False)

    conn.execute("create unique index on t (region)")
    assert info_of(conn, "t", keys).key_is_enforced


def test_columns_that_can_lie_out_of_line(conn):
    conn.execute(
        "create table t (id int primary key, body text, doc jsonb, raw bytea, code varchar(3), price numeric(12,2),"
        " huge numeric, twice text generated always as (body) stored, plain text)"
    )
    conn.execute("alter table t alter column plain set storage plain")
    conn.execute("create table narrow (id int primary key, code varchar(5))")
    conn.execute("create table parted (id int primary key, body text) partition by range (id)")

    info = info_of(conn, "t")
    assert info.toastable == ("body", "doc", "raw", "huge")
    assert "twice" not in info.columns
    assert info_of(conn, "narrow").toastable == ()
    assert info_of(conn, "parted").toastable == ()

    conn.execute("create table parted_1 partition of parted for values from (0) to (9)")
    info = info_of(conn, "parted")
    assert info.toastable == ("body",)
    assert info.leaves == (("public", "parted_1"),)


def test_large_values_are_a_warning_where_there_are_some(database, conn):
    conn.execute("create table t (id int primary key, body text)")
    conn.execute("create table parted (id int primary key, body text) partition by range (id)")
    conn.execute("create table parted_1 partition of parted for values from (0) to (9)")
    conn.execute("insert into t values (1, 'short')")
    told = {each.subject: each for each in findings(database.dsn, tables=["public.t", "public.parted"])}
    assert told["table public.t"].level == "OK"
    assert "no value of body is large enough yet" in told["table public.t"].text

    for table in ("t", "parted"):
        conn.execute(f"alter table {table} alter body set storage external")
    conn.execute("alter table parted_1 alter body set storage external")
    conn.execute("insert into t values (2, repeat('long', 2000)); insert into parted values (2, repeat('long', 2000))")
    warned = [
        each.subject for each in findings(database.dsn, tables=["public.*"]) if "leaves out large values" in each.text
    ]
    assert sorted(warned) == ["table public.parted", "table public.t"]


def test_estimated_rows_of_a_root_are_those_of_its_leaves(conn):
    conn.execute("create table parted (id int primary key) partition by range (id)")
    conn.execute("create table parted_1 partition of parted for values from (0) to (100)")
    conn.execute("create table parted_2 partition of parted for values from (100) to (200)")
    conn.execute("insert into parted select generate_series(50, 149)")
    conn.execute("analyze parted_1")
    assert info_of(conn, "parted").estimated_rows == 50
    conn.execute("analyze parted_2")
    assert info_of(conn, "parted").estimated_rows == 100


_PARTED = (
    "create table t (id int primary key, code int not null, v text) partition by range (id);"
    "create table t_1 partition of t for values from (0) to (9);"
)


@pytest.mark.parametrize(
    ("sql", "source", "reason"),
    [
        pytest.param("create table t (v text)", {}, "no primary key", id="no key"),
        pytest.param(
            "create table t (v int not null, w int); create unique index u on t (v);"
            "create unique index partial on t (w) where w > 0;",
            {},
            "no primary key",
            id="unique index",
        ),
        pytest.param("create table t (id int primary key deferrable)", {}, "DEFERRABLE", id="deferrable"),
        pytest.param(
            "create table t (id int primary key); alter table t replica identity nothing",
            {},
            "REPLICA IDENTITY NOTHING",
            id="nothing",
        ),
        pytest.param(
            "create table t (id int primary key, v int not null); create unique index u on t (v);"
            "alter table t replica identity using index u; drop index u",
            {},
            "replica identity index that is gone",
            id="index gone",
        ),
        pytest.param(
            "create table t (v int, id int generated always as (v * 2) stored primary key)",
            {},
            "generated column",
            id="generated",
        ),
        pytest.param("create table t (v int)", {"keys": {"public.t": ["v"]}}, "identity is DEFAULT", id="configured"),
        pytest.param(_PARTED + "alter table t_1 replica identity full", {}, "public.t_1", id="leaf full"),
        pytest.param(_PARTED + "alter table t replica identity full", {}, "public.t_1", id="root full"),
        pytest.param(
            _PARTED + "create unique index u on t (code, id); alter table t replica identity using index u",
            {},
            "public.t_1",
            id="leaf index",
        ),
    ],
)
def test_unusable_table_fails_by_name_until_the_remedy_is_carried_out(database, conn, sql, source, reason):
    conn.execute(sql)

    found = troubles(findings(database.dsn, tables=["public.t"], **source))

    assert list(found) == ["table public.t"]
    assert reason in found["table public.t"].text
    mend(conn, found["table public.t"])
    assert troubles(findings(database.dsn, tables=["public.t"], **source)) == {}


def test_configured_key_with_unknown_column_lists_the_columns(database, conn):
    conn.execute("create table public.t (v int, w int)")
    found = troubles(findings(database.dsn, tables=["public.t"], keys={"public.t": ["x"]}))
    assert "no published column 'x'" in found["table public.t"].text
    assert "v, w" in found["table public.t"].remedy


def test_identity_is_read_as_the_server_has_it(conn):
    conn.execute("create table public.t (id int primary key)")
    for word, identity in (("full", ReplicaIdentity.FULL), ("nothing", ReplicaIdentity.NOTHING)):
        conn.execute(f"alter table public.t replica identity {word}")
        assert info_of(conn, "t").replica_identity is identity
