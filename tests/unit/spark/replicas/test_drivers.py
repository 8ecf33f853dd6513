"""Files of SQLite and DuckDB, read at one moment."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from cdc.contract.jobspec.deployment import JobColumn, JobTable
from cdc.spark.errors import SourceUnreadable
from cdc.spark.replicas.duckdb import DuckdbDriver
from cdc.spark.replicas.sqlite import SqliteDriver

MOMENTS = {
    "2026-11-20": "DATE", "0001-01-01 BC": "DATE", "infinity": "DATE", "294247-01-10 04:00:54.5": "TIMESTAMP",
    "2026-11-20 12:13:14+00": "TIMESTAMPTZ", "4714-12-31 23:59:59.5+00 BC": "TIMESTAMPTZ", "-infinity": "TIMESTAMPTZ",
}  # fmt: skip
HOLDS = """
import duckdb, sys
with duckdb.connect(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""


def table(namespace: str, *columns: str) -> JobTable:
    described = tuple(JobColumn(name=each, sql_type="text", kind="text") for each in columns)
    return JobTable(namespace=namespace, name="items", topic="x", key=columns[:1], columns=described)


def test_a_transaction_sees_one_commit_of_the_sink(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "a #file?.db")
    assert not driver.exists()
    with closing(sqlite3.connect(driver.address, isolation_level=None)) as sink:
        sink.execute("PRAGMA journal_mode = WAL")
        sink.execute("CREATE TABLE items (id TEXT PRIMARY KEY, v TEXT) STRICT")
        sink.execute("INSERT INTO items VALUES ('a', 'old')")
        assert driver.exists()
        with driver.begin() as transaction:
            assert not transaction.has_replica()
            sink.execute("CREATE TABLE cdc_cut (lsn TEXT)")
            sink.execute("UPDATE items SET v = 'new'")
            assert not transaction.has_replica()
            assert transaction.rows(table("main", "V", "id")).fetchall() == [("old", "a")]
        with driver.begin() as transaction:
            assert transaction.has_replica()
            assert transaction.rows(table("main", "v")).fetchall() == [("new",)]


def test_damaged_text_is_read_and_a_failure_names_the_file(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "f.db")
    with closing(sqlite3.connect(driver.address, isolation_level=None)) as session:
        session.execute("CREATE TABLE items (id TEXT)")
        session.execute("INSERT INTO items VALUES (CAST(x'61ff' AS TEXT))")
    with driver.begin() as transaction:
        assert transaction.rows(table("main", "id")).fetchall() == [("a\\xff",)]
    with (
        pytest.raises(SourceUnreadable, match=r"failed to read .*f\.db: no such column: t\.v"),
        driver.begin() as found,
    ):
        found.rows(table("main", "v"))
    (tmp_path / "f.db").write_bytes(b"no database" * 100)
    with pytest.raises(SourceUnreadable, match="file is not a database"), driver.begin() as found:
        found.has_replica()


def test_moments_of_duckdb_are_printed_as_postgresql_prints_them(tmp_path: Path) -> None:
    driver = DuckdbDriver(tmp_path / "f.db")
    names = [f"c{number}" for number in range(len(MOMENTS))]
    with duckdb.connect(driver.address) as sink:
        sink.execute("SET TimeZone = 'US/Samoa'")
        sink.execute("CREATE SCHEMA sales")
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, MOMENTS.values(), strict=True))
        sink.execute(f"CREATE TABLE sales.items ({columns}, b BLOB, d DECIMAL(9, 7), r FLOAT)")
        texts = [
            f"{each.removesuffix(' BC').replace(' ', ' (BC) ', 1)}" if " " in each.removesuffix(" BC") else
            f"{each.removesuffix(' BC')} (BC)"
            if each.endswith(" BC") else each
            for each in MOMENTS
        ]  # fmt: skip
        texts = [new if old.endswith(" BC") else old for old, new in zip(MOMENTS, texts, strict=True)]
        values = ", ".join(f"'{text}'::{kind}" for text, kind in zip(texts, MOMENTS.values(), strict=True))
        sink.execute(f"INSERT INTO sales.items VALUES ({values}, '\\x00'::BLOB, 0.0000001, 0.1)")
    with driver.begin() as transaction:
        assert not transaction.has_replica()
        (row,) = transaction.rows(table("sales", *names, "b")).fetchall()
        assert row == (*MOMENTS, b"\x00")


def test_a_file_of_duckdb_that_is_open_elsewhere_is_refused_with_what_to_do(tmp_path: Path) -> None:
    driver = DuckdbDriver(tmp_path / "f.db")
    command = [sys.executable, "-c", HOLDS, driver.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(SourceUnreadable, match=r"another process has .* open") as refused, driver.begin():
            pass
        other.stdin.close()
    assert "stop the sink" in refused.value.remedy
    (tmp_path / "f.db").write_bytes(b"no database" * 1000)
    with pytest.raises(SourceUnreadable, match="DuckDB failed to read"), driver.begin():
        pass
