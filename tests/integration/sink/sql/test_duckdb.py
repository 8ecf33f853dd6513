"""What DuckDB does not hold, and what stands in the way of its file: each is said, and nothing is lost meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from cdc.base.errors import ReplicaRefused, ReplicaUnavailable
from cdc.contract.record import SchemaColumn
from cdc.sink.dialects import open_replica
from cdc.sink.rejections import RecordRejected
from cdc.sink.replica import ReplicaDatabase
from tests.integration.sink.test_databases import ITEMS, TRUE, DuckdbFile, apply, record, session
from tests.support.small_disk import enlarge, small_disk


def opened(file: DuckdbFile) -> ReplicaDatabase:
    return open_replica(file.config(), application_name="test")


@pytest.fixture
def shop(tmp_path: Path) -> DuckdbFile:
    return DuckdbFile(tmp_path / "shop.duckdb")


@pytest.mark.parametrize(
    ("sql_type", "text"), [("numeric(12,3)", "NaN"), ("timestamp", "294276-12-31 23:59:59.999999")]
)
def test_a_value_that_its_type_does_not_hold_stops_the_table_until_the_column_is_text(
    shop: DuckdbFile, sql_type: str, text: str
) -> None:
    schema = replace(ITEMS, columns=(ITEMS.columns[0], SchemaColumn("name", sql_type)))
    bad = record(2, "", 1)._replace(value=orjson.dumps({"id": 2, "name": text}))
    plain = record(1, "", 0)._replace(value=orjson.dumps({"id": 1, "name": None}))
    with session(opened(shop), schema) as writer:
        with pytest.raises(RecordRejected) as refused:
            apply(writer, 100, plain, bad)
        assert refused.value.record == bad
        writer.stop_table(refused.value.topic, refused.value.reason_and_remedy, refused.value.record)
    assert opened(shop).status().tables[0].state == "stopped"
    shop.execute("ALTER TABLE mirror.items ALTER COLUMN name TYPE VARCHAR")
    with session(opened(shop), schema, is_asked=True) as writer:
        apply(writer, 100, plain, bad, standing=TRUE._replace(joining=[ITEMS.topic]))
    assert shop.rows("items") == [(1, None), (2, text)]


def test_a_table_of_ones_own_is_used_as_it_is(shop: DuckdbFile) -> None:
    schema = replace(ITEMS, name="order_items")
    opened(shop).upgrade()
    shop.execute("CREATE SCHEMA mirror; CREATE TABLE mirror.orderXitems (other INTEGER PRIMARY KEY)")
    shop.execute("CREATE TABLE mirror.Order_Items (Name VARCHAR, ID BIGINT PRIMARY KEY, mine INTEGER DEFAULT 7)")
    with session(opened(shop), schema) as writer:
        apply(writer, 100, record(1, "a", 0), record(2, "b", 1))
        apply(writer, 200, record(1, "z", 2), record(2, None, 3))
    assert shop.rows("order_items") == [("z", 1, 7)]


def test_a_process_that_has_the_file_open_is_waited_for(shop: DuckdbFile) -> None:
    with session(opened(shop), ITEMS) as writer:
        apply(writer, 100, record(1, "a", 0))
    holds = (
        f"import duckdb, sys; held = duckdb.connect({str(shop.path)!r}); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        for ask in (opened(shop).upgrade, opened(shop).writer, opened(shop).status):
            with pytest.raises(ReplicaUnavailable, match=f"PID {other.pid}.*\n.*lets one process at a time"):
                ask()
        other.communicate()
    with session(opened(shop), ITEMS, resumes=True) as writer:
        apply(writer, 200, record(2, "b", 1))
    assert shop.rows("items") == [(1, "a"), (2, "b")]


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    with small_disk(disk, 2, (os.geteuid(), os.getegid())):
        shop = DuckdbFile(disk / "shop.duckdb")
        rows = [record(number, f"{number:010}" * 100, number) for number in range(5000)]
        with session(opened(shop), ITEMS) as writer, pytest.raises(ReplicaUnavailable, match="make room on the file's"):
            apply(writer, 100, *rows)
        enlarge(disk)
        with session(opened(shop), ITEMS, resumes=True) as writer:
            assert shop.rows("items") == []
            apply(writer, 100, *rows)
        assert len(shop.rows("items")) == 5000


def test_what_is_no_database_is_refused(shop: DuckdbFile, tmp_path: Path) -> None:
    shop.path.write_bytes(b"a letter, and nothing that DuckDB knows" * 500)
    with pytest.raises(ReplicaRefused, match=r"name another file in sink\.url"):
        opened(shop).upgrade()
    with pytest.raises(ReplicaRefused, match=r"create the folder that sink\.url names"):
        opened(DuckdbFile(tmp_path / "nowhere" / "shop.duckdb")).upgrade()
