"""What stands in the way of a file of SQLite, and what the sink says about it: nothing is lost meanwhile."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.contract.record import SchemaColumn
from cdc.sink.dialects import open_replica
from cdc.sink.rejections import RecordRejected
from cdc.sink.replica import ReplicaDatabase
from tests.integration.sink.test_databases import ITEMS, SqliteFile, apply, record, session
from tests.support.small_disk import enlarge, small_disk


def opened(file: SqliteFile) -> ReplicaDatabase:
    return open_replica(file.config(), application_name="test")


@pytest.fixture
def shop(tmp_path: Path) -> SqliteFile:
    return SqliteFile(tmp_path / "shop.db")


def test_a_writer_beside_the_sink_delays_it(shop: SqliteFile) -> None:
    with session(opened(shop), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0))
        with closing(sqlite3.connect(shop.path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                ReplicaUnavailable, match="end the transaction that another program has open on the file"
            ):
                apply(writer, 200, record(2, "b", 1))
    with session(opened(shop), ITEMS, resumes=True) as writer:
        apply(writer, 200, record(2, "b", 1))
    assert shop.rows("items") == [(1, "a"), (2, "b")]


def test_a_reader_keeps_its_moment_while_the_sink_goes_on(shop: SqliteFile) -> None:
    with session(opened(shop), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0))
        with closing(sqlite3.connect(shop.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            before = reader.execute("SELECT lsn FROM cdc_cut").fetchall()
            apply(writer, 200, record(2, "b", 1))
            now = reader.execute("SELECT lsn, (SELECT count(*) FROM items) FROM cdc_cut").fetchall()
            assert now == [(*before[0], 1)]
    assert shop.rows("items") == [(1, "a"), (2, "b")]


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    with small_disk(disk, 1, (os.geteuid(), os.getegid())):
        shop = SqliteFile(disk / "shop.db")
        rows = [record(number, "x" * 1000, number) for number in range(3000)]
        with session(opened(shop), ITEMS) as writer:
            with pytest.raises(ReplicaUnavailable, match="make room on the file's disk"):
                apply(writer, 100, *rows)
            assert shop.rows("items") == []
        enlarge(disk)
        with session(opened(shop), ITEMS, resumes=True) as writer:
            apply(writer, 100, *rows)
        assert len(shop.rows("items")) == 3000


def test_a_disk_that_takes_no_writes_is_refused(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    with small_disk(disk, 1, (os.geteuid(), os.getegid())):
        shop = SqliteFile(disk / "shop.db")
        with session(opened(shop), ITEMS) as writer:
            apply(writer, 100, record(1, "a", 0))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(ReplicaRefused, match="let the sink's user write to it and to the file"):
            opened(shop).upgrade()
        assert [each.text for each in opened(shop).inspect([], None).lacks] == ["may not be written"] * 2


def test_what_is_no_database_is_refused(shop: SqliteFile, tmp_path: Path) -> None:
    shop.path.write_bytes(b"a letter, and nothing that SQLite knows" * 100)
    with pytest.raises(ReplicaRefused, match=r"name another file in sink\.url"):
        opened(shop).upgrade()
    with pytest.raises(ReplicaRefused, match=r"create the folder that sink\.url names"):
        opened(SqliteFile(tmp_path / "nowhere" / "shop.db")).upgrade()


def test_columns_that_differ_in_case_only_stop_their_table(shop: SqliteFile) -> None:
    alike = replace(ITEMS, columns=(*ITEMS.columns, SchemaColumn("Name", "text")))
    with session(opened(shop), alike) as writer:
        assert not writer.active()
    assert "'name' and 'Name', which are the same to SQLite" in opened(shop).status().tables[0].reason


def test_a_table_of_ones_own_is_used_as_it_is(shop: SqliteFile) -> None:
    opened(shop).upgrade()
    shop.execute("CREATE TABLE Items (name TEXT, ID INT PRIMARY KEY, mine INT DEFAULT 7, size INT AS (ID)) STRICT")
    sized = replace(ITEMS, columns=(*ITEMS.columns, SchemaColumn("size", "int4")))
    with session(opened(shop), sized) as writer:
        apply(writer, 100, record(1, "a", 0)._replace(value=b'{"id":1,"name":"a","size":5}'))
    assert shop.rows("items") == [("a", 1, 7, 1)]


def test_a_trigger_that_leaves_a_row_out_stops_the_table(shop: SqliteFile) -> None:
    with session(opened(shop), ITEMS) as writer:
        shop.execute("CREATE TRIGGER odd BEFORE INSERT ON items WHEN NEW.id = 2 BEGIN SELECT RAISE(IGNORE); END")
        bad = record(2, "b", 1)
        with pytest.raises(RecordRejected, match="a trigger keeps a row out") as refused:
            apply(writer, 100, record(1, "a", 0), bad, record(3, "c", 2))
        assert refused.value.record == bad


def test_a_table_that_may_convert_values_is_refused(shop: SqliteFile) -> None:
    opened(shop).upgrade()
    shop.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    with session(opened(shop), ITEMS) as writer:
        assert not writer.active()
    assert "is not STRICT" in opened(shop).status().tables[0].reason


def test_a_key_that_does_not_tell_all_values_apart_stops_its_table(shop: SqliteFile) -> None:
    text = replace(ITEMS, columns=(SchemaColumn("id", "text"), SchemaColumn("name", "text")))
    opened(shop).upgrade()
    shop.execute("CREATE TABLE items (id TEXT COLLATE NOCASE PRIMARY KEY, name TEXT) STRICT")
    with session(opened(shop), text) as writer:
        assert not writer.active()
    told = opened(shop).status().tables[0].reason
    assert "that tells all different values apart" in told
    shop.execute(told.partition("remedy: ")[2].partition(";")[0])
    with session(opened(shop), text) as writer:
        assert set(writer.active()) == {ITEMS.topic}
