"""Conditions that arrive as text: one expression and nothing more; and what is read of rows is bounded in bytes."""

from __future__ import annotations

import psycopg
import pytest

from cdc.base.errors import ConfigError, SourceRefused
from cdc.bridge.capture.chunk import Chunk, ChunkReader, open_chunk_reader, view_table
from cdc.bridge.capture.key_rows import MAX_BYTES, read_keys
from cdc.bridge.source.catalog import table_info
from cdc.bridge.source.table import TableInfo
from tests.support.servers import Database

NO_CONDITIONS = [
    "true); ROLLBACK; SET default_transaction_read_only = off; DROP TABLE victim; --",
    "true)) TO PROGRAM 'touch /tmp/x' --",
    "true) UNION SELECT id FROM victim WHERE (true",
    "true) OR (true",
    "true] OR [true",
    "true --) \n) OR (true",
    "true /* never closed",
    "'never closed",
    "$$never closed",
    "true; SELECT 1",
    "id = $1",
    "id, true",
    "",
]
CONDITIONS = [
    "id = 1",
    "s = 'a) OR (b' AND id IN (1, 2)",
    "id = ANY (ARRAY[1, 2]) -- and a remark",
    "s LIKE E'a\\'%' /* ( */ OR id = 1",
    'id < 2 AND "s" = $q$a) OR (b$q$',
]


def setup(database: Database) -> TableInfo:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, s text); INSERT INTO t VALUES (1, 'a) OR (b'), (3, 'other');"
        "CREATE TABLE victim (id int PRIMARY KEY)"
    )
    with database.connect() as conn:
        info = table_info(conn, "public", "t", {})
    assert info is not None
    return info


def read(conn: psycopg.Connection, info: TableInfo, where: str) -> list[bytes]:
    with ChunkReader(conn, Chunk(info, "public", "t", 0, None, where), "none") as reader:
        assert reader.begin(None) is not None
        reader.copy()
        return reader.rows(100, 1_000_000)


def test_a_request_in_the_progress_topic_runs_no_statement(database: Database) -> None:
    info = setup(database)
    for where in NO_CONDITIONS:
        with (
            open_chunk_reader({"conninfo": database.dsn}, application_name="test") as conn,
            pytest.raises(ConfigError, match=r"not a condition on public\.t"),
        ):
            view_table(conn, info, "none", where, None)
    # And should one get past that, the query itself takes one statement, and writes nothing
    for where in (NO_CONDITIONS[0], "nextval('numbers') > 0"):
        database.execute("CREATE SEQUENCE IF NOT EXISTS numbers")
        with open_chunk_reader({"conninfo": database.dsn}, application_name="test") as conn:
            with pytest.raises(SourceRefused, match="with this condition") as refused:
                read(conn, info, where)
            assert refused.value.remedy == "correct --where"
    assert database.execute("SELECT to_regclass('public.victim')") == [("victim",)]
    for where in CONDITIONS:
        with open_chunk_reader({"conninfo": database.dsn}, application_name="test") as conn:
            assert view_table(conn, info, "none", where, None).heaps
            assert read(conn, info, where) == [b"1\ta) OR (b\n"], where


def test_a_repair_of_large_rows_reads_some_of_them_at_a_time(database: Database) -> None:
    info = setup(database)
    database.execute("INSERT INTO t SELECT i, repeat('x', 1024 * 1024) FROM generate_series(100, 139) i")
    keys = [(b"%d" % i,) for i in range(100, 140)]
    asked, rounds = keys, 0
    read_ones: list[tuple[bytes, ...] | None] = []
    with open_chunk_reader({"conninfo": database.dsn}, application_name="test") as conn:
        while asked:
            found = read_keys(conn, info, "none", lambda _: asked, lambda _: True, None)
            assert found is not None
            rows = [answer.row for answer in found.answers if answer.row is not None]
            assert 0 < sum(len(row[1] or b"") for row in rows) <= MAX_BYTES + 1024 * 1024
            assert all((answer.row is not None) == answer.is_read for answer in found.answers)
            read_ones += [answer.key for answer in found.answers if answer.is_read]
            asked = [each for each, answer in zip(asked, found.answers, strict=True) if not answer.is_read]
            rounds += 1
    assert read_ones == keys
    assert rounds == 5
