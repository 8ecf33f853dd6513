"""Reading rows by key: which table and which operator are meant, and what a failure of it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from cdc.base.errors import SourceAltered, SourceBusy, SourceRefused
from cdc.bridge.capture import copy_both
from cdc.bridge.capture.chunk import view_table
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.key_rows import read_keys
from cdc.bridge.capture.reading import describe
from cdc.bridge.capture.reread import RereadRow, reread
from cdc.bridge.source.catalog import table_info
from cdc.bridge.source.connect import connect
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Relation
from tests.support.servers import Database

OWN_INT = """
CREATE SCHEMA IF NOT EXISTS own; CREATE TYPE own.number;
CREATE FUNCTION own.number_in(cstring) RETURNS own.number LANGUAGE internal STRICT IMMUTABLE AS 'int4in';
CREATE FUNCTION own.number_out(own.number) RETURNS cstring LANGUAGE internal STRICT IMMUTABLE AS 'int4out';
CREATE TYPE own.number (INPUT = own.number_in, OUTPUT = own.number_out, LIKE = int4);
CREATE FUNCTION own.eq(own.number, own.number) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int4eq';
CREATE FUNCTION own.lt(own.number, own.number) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int4lt';
CREATE FUNCTION own.le(own.number, own.number) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int4le';
CREATE FUNCTION own.gt(own.number, own.number) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int4gt';
CREATE FUNCTION own.ge(own.number, own.number) RETURNS bool LANGUAGE internal STRICT IMMUTABLE AS 'int4ge';
CREATE FUNCTION own.cmp(own.number, own.number) RETURNS int LANGUAGE internal STRICT IMMUTABLE AS 'btint4cmp';
CREATE OPERATOR own.=== (LEFTARG = own.number, RIGHTARG = own.number, FUNCTION = own.eq);
CREATE OPERATOR own.< (LEFTARG = own.number, RIGHTARG = own.number, FUNCTION = own.lt);
CREATE OPERATOR own.<= (LEFTARG = own.number, RIGHTARG = own.number, FUNCTION = own.le);
CREATE OPERATOR own.> (LEFTARG = own.number, RIGHTARG = own.number, FUNCTION = own.gt);
CREATE OPERATOR own.>= (LEFTARG = own.number, RIGHTARG = own.number, FUNCTION = own.ge);
CREATE OPERATOR CLASS own.number_ops DEFAULT FOR TYPE own.number USING btree AS OPERATOR 1 own.<, OPERATOR 2 own.<=,
  OPERATOR 3 own.===, OPERATOR 4 own.>=, OPERATOR 5 own.>, FUNCTION 1 own.cmp(own.number, own.number);
CREATE DOMAIN own.small AS own.number; CREATE TYPE own.mood AS ENUM ('sad', 'glad');
"""
"""A type as an extension brings one: its operators are where ``search_path`` does not look, and called as they like."""

TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")


class Source:
    """One connection of ours, and what it reads."""

    def __init__(self, database: Database, *, user: str | None = None) -> None:
        arguments = {"conninfo": database.dsn} | ({"user": user} if user else {})
        self.conn = connect(arguments, application_name="test")

    def table(self, name: str, keys: Sequence[str] = ()) -> tuple[TableInfo, Relation]:
        """A table, and how the stream would describe it."""
        info = table_info(self.conn, "public", name, {f"public.{name}": keys} if keys else {})
        assert info is not None
        return info, describe(self.conn, info, None)

    def reread(self, info: TableInfo, relation: Relation, *keys: tuple[bytes, ...]) -> list[tuple[bytes | None, ...]]:
        """Column ``body`` of these keys' rows."""
        found = reread(self.conn, relation, info.key, ["body"], keys).rows
        return [row.values for key in keys if isinstance(row := found.get(key), RereadRow)]

    def repair(self, info: TableInfo, *keys: tuple[bytes, ...]) -> list[bytes | None]:
        """The last column of these keys' rows, as a repair reads them."""
        found = read_keys(self.conn, info, "none", lambda _: keys, lambda _: True, None)
        assert found is not None
        assert [answer.key for answer in found.answers] == list(keys)
        return [None if answer.row is None else answer.row[-1] for answer in found.answers]


@pytest.fixture
def source(database: Database):
    opened = Source(database)
    yield opened
    opened.conn.close()


def test_a_row_of_a_table_that_inherits_is_not_the_parents(database: Database, source: Source) -> None:
    database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY, body text); CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (parent);"
        "INSERT INTO parent VALUES (1, 'of the parent'); INSERT INTO heir VALUES (1, 'of the heir'), (2, 'heir only');"
        "INSERT INTO heir SELECT i, '' FROM generate_series(3, 9000) i; ANALYZE;"
        "CREATE TABLE root (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);"
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10); INSERT INTO root VALUES (1, 'of the leaf')"
    )
    info, relation = source.table("parent")
    assert source.reread(info, relation, (b"1",), (b"2",)) == [(b"of the parent",)]
    assert source.repair(info, (b"1",), (b"2",)) == [b"of the parent", None]
    assert view_table(source.conn, info, "none", None, None).estimated_rows < 3_000
    info, relation = source.table("root")
    assert source.reread(info, relation, (b"1",)) == [(b"of the leaf",)]
    assert source.repair(info, (b"1",)) == [b"of the leaf"]


def test_keys_of_every_kind_of_type(database: Database, source: Source) -> None:
    database.execute(OWN_INT)
    kinds = {
        "own.number": b"5",
        "own.small": b"5",
        "own.mood": b"sad",
        "varchar(9)": b"v",
        "char(3)": b"c  ",
        "citext_like": b"x",
        "int4[]": b"{1,2}",
        "cidr": b"10.0.0.0/8",
        "int4range": b"[1,3)",
        "name": b"n",
        '"char"': b"c",
        "numeric(6,2)": b"1.50",
    }
    database.execute("CREATE DOMAIN citext_like AS text CHECK (value <> '')")
    for i, (kind, key) in enumerate(kinds.items()):
        database.execute(f"CREATE TABLE t{i} (a {kind}, b int, body text, PRIMARY KEY (b, a))")
        database.execute(f"INSERT INTO t{i} VALUES (%s, 7, %s)", (key.decode(), kind))
        info, relation = source.table(f"t{i}")
        assert info.key == ("b", "a")
        assert source.reread(info, relation, (b"7", key), (b"8", key)) == [(kind.encode(),)], kind
        assert source.repair(info, (b"7", key), (b"8", key)) == [kind.encode(), None], kind


def test_configured_keys_have_no_index_to_ask(database: Database, source: Source) -> None:
    database.execute(OWN_INT)
    for kind, key in {"own.small": b"5", "xid": b"7", "own.mood[]": b"{glad}", "point": b"(1,2)"}.items():
        database.execute(f"CREATE TABLE t (a {kind}, body text); ALTER TABLE t REPLICA IDENTITY FULL")
        database.execute("INSERT INTO t VALUES (%s, 'mine')", (key.decode(),))
        info, relation = source.table("t", keys=["a"])
        assert source.reread(info, relation, (key,)) == [(b"mine",)], kind
        assert source.repair(info, (key,)) == [b"mine"], kind
        database.execute("DROP TABLE t")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t DROP COLUMN body",
        "ALTER TABLE t RENAME COLUMN body TO contents",
        "ALTER TABLE t RENAME COLUMN id TO number",
        "ALTER TABLE t ALTER id TYPE uuid USING md5(id)::uuid",
        "ALTER TABLE t ALTER body TYPE json USING to_json(body)",
        "ALTER TABLE t ALTER body TYPE char(100)",
        "CREATE DOMAIN words AS text; ALTER TABLE t ALTER body TYPE words",
        "DROP TABLE t; CREATE TABLE t (id text PRIMARY KEY, body text); INSERT INTO t VALUES ('a', 'of another table')",
    ],
)
def test_what_the_stream_described_is_not_there_any_more(database: Database, source: Source, change: str) -> None:
    database.execute("CREATE TABLE t (id text PRIMARY KEY, body text); INSERT INTO t VALUES ('a', 'text')")
    info, relation = source.table("t")
    assert source.reread(info, relation, (b"a",)) == [(b"text",)]
    database.execute(change)
    with pytest.raises(SourceAltered, match=r"public\.t|table \d+ is gone"):
        source.reread(info, relation, (b"a",))
    assert source.conn.execute("SELECT 1").fetchone() == (1,)


def test_columns_that_exchanged_their_names_are_not_there_any_more(database: Database, source: Source) -> None:
    """The value came from the column that is called ``body`` now, and only its number tells."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, other text, body text); INSERT INTO t VALUES (1, 'o', 'b')")
    info, relation = source.table("t")
    database.execute(
        "ALTER TABLE t RENAME body TO x; ALTER TABLE t RENAME other TO body; ALTER TABLE t RENAME x TO other"
    )
    with pytest.raises(SourceAltered, match=r"public\.t: columns have other names now"):
        source.reread(info, relation, (b"1",))


def test_a_column_that_was_dropped_and_added_again_has_another_number(database: Database, source: Source) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, other text, body text); INSERT INTO t VALUES (1, 'o', 'b')")
    info, relation = source.table("t")
    assert reread(source.conn, relation, info.key, ["body"], [(b"1",)]).numbers == (1, 2, 3)
    database.execute("ALTER TABLE t DROP COLUMN body, ADD COLUMN body text DEFAULT 'another', DROP COLUMN other")
    assert reread(source.conn, relation, info.key, ["body"], [(b"1",)]).numbers == (1, 0, 4)


def test_a_table_that_was_swapped_by_name_is_read_where_it_is_now(database: Database, source: Source) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'the stream means this');"
        "CREATE TABLE t_new (id int PRIMARY KEY, body text); INSERT INTO t_new VALUES (1, 'another table')"
    )
    info, relation = source.table("t")
    database.execute("ALTER TABLE t RENAME TO t_old; ALTER TABLE t_new RENAME TO t")
    assert source.reread(info, relation, (b"1",)) == [(b"the stream means this",)]


def test_a_lock_is_no_missing_grant(database: Database, source: Source) -> None:
    """Busy is told from refused, and the connection can be used on; the GRANT that is offered mends what it should."""
    role = f"reader_{database.name}"
    database.execute("CREATE TABLE t (id int PRIMARY KEY, body text); INSERT INTO t VALUES (1, 'text')")
    info, relation = source.table("t")
    source.conn.execute("SET lock_timeout = '50ms'")
    with database.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE t")
        with pytest.raises(SourceBusy, match="lock timeout") as busy:
            source.reread(info, relation, (b"1",))
        assert "GRANT" not in busy.value.remedy
        with pytest.raises(SourceBusy, match="lock timeout"):
            source.repair(info, (b"1",))
        holder.rollback()
    assert source.reread(info, relation, (b"1",)) == [(b"text",)]

    database.execute(f"CREATE ROLE {role} LOGIN; REVOKE ALL ON SCHEMA public FROM public")
    reader = Source(database, user=role)
    try:
        with pytest.raises(SourceRefused, match="permission denied") as refused:
            reader.reread(info, relation, (b"1",))
        database.execute(refused.value.remedy)
        assert reader.reread(info, relation, (b"1",)) == [(b"text",)]
        database.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        for read in (lambda: reader.reread(info, relation, (b"1",)), lambda: reader.repair(info, (b"1",))):
            with pytest.raises(SourceRefused, match="row-level security") as hidden:
                read()
        database.execute(hidden.value.remedy)
        assert reader.repair(info, (b"1",)) == [b"text"]
    finally:
        reader.conn.close()
        database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.pg(16, 18)
def test_no_session_limit_of_a_role_or_database_reaches_us(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [
        *TIMEOUTS,
        *(["transaction_timeout"] if database.execute("SHOW server_version_num")[0][0] >= "17" else []),
    ]
    for limit in limits:
        database.execute(f"ALTER DATABASE {database.name} SET {limit} = '20s'")
    with (
        psycopg.connect(database.dsn) as ordinary,
        connect({"conninfo": database.dsn, "options": "-c statement_timeout=5s"}, application_name="test") as ours,
    ):
        opened: list[psycopg.Connection[Any]] = []

        def opens(*args: Any, **more: Any) -> psycopg.Connection[Any]:
            opened.append(connect(*args, **more))
            return opened[-1]

        monkeypatch.setattr(copy_both, "connect", opens)
        walsender = CopyBoth({"conninfo": database.dsn}, application_name="test")
        try:
            for limit in limits:
                assert ordinary.execute(f"SHOW {limit}").fetchone() == ("20s",)
                assert ours.execute(f"SHOW {limit}").fetchone() == ("0",)
                assert opened[0].pgconn.exec_(f"SHOW {limit}".encode()).get_value(0, 0) == b"0", limit
        finally:
            walsender.close()
