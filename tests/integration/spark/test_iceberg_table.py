"""Iceberg tables by themselves: what a merge writes, what two writers do to each other, and what is removed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, ShortType, StructField, StructType
from pyspark.sql.types import StringType as Text

from cdc.spark.errors import JobError
from cdc.spark.mirror.iceberg import IcebergLake, IcebergTable
from cdc.spark.mirror.versioned import MARKS
from tests.integration.spark.lake_tables import iceberg_table, rows_in

COLUMNS = StructType(
    [
        StructField("cdc_key", Text()),
        StructField("a.b, c", ShortType()),
        StructField("price", DecimalType(5, 2)),
        StructField("list", ArrayType(ShortType())),
    ]
)
ROWS = "cdc_key string, `a.b, c` smallint, price decimal(5,2), list array<smallint>"
CHANGES = f"cdc_deleted boolean, {ROWS}"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[IcebergLake]:
    with closing(IcebergLake(spark, tmp_path)) as opened:
        opened.open()
        yield opened


@pytest.fixture
def table(spark: SparkSession, lake: IcebergLake) -> IcebergTable:
    """Three files of ten rows."""
    made = lake.table("thing")
    assert isinstance(made, IcebergTable)
    made.create(COLUMNS, {f"{MARKS}mark": "1"}, "none")
    for first in (0, 10, 20):
        numbers = spark.range(first, first + 10, numPartitions=1)
        rows = numbers.selectExpr("string(id) cdc_key", "smallint(id) `a.b, c`", "decimal(id) price", "array(1S) list")
        made.append(rows, f"to {first}", first)
    return made


def newest(table: IcebergTable) -> int:
    return next(table.commits())[0]


def files(folder: Path) -> set[str]:
    with iceberg_table(folder) as found:
        return {each.file.file_path.rpartition("/")[2] for each in found.scan().plan_files()}


def test_a_merge_writes_the_files_anew_that_hold_its_keys_and_no_others(
    spark: SparkSession, table: IcebergTable
) -> None:
    before, version = files(table.folder), newest(table)
    changes = [(True, "11", None, None, None), (False, "12", -1, None, [None, 2]), (False, "new", 5, None, None)]
    table.merge(spark.createDataFrame(changes, CHANGES), "merged", 1)
    assert [told for _, told in table.commits()] == ["merged", "to 20", "to 10", "to 0", "none"]
    assert len(before & files(table.folder)) == 2
    rows = {row["cdc_key"]: row for row in rows_in(table.folder)}
    assert sorted(rows) == sorted([*(str(each) for each in range(30) if each != 11), "new"])
    assert (rows["12"]["a.b, c"], rows["12"]["list"], rows["13"]["a.b, c"]) == (-1, [None, 2], 13)
    assert len(rows_in(table.folder, version)) == 30
    table.compact("merged")
    assert len(files(table.folder)) == 1
    assert {row["cdc_key"]: row for row in rows_in(table.folder)} == rows


def test_a_column_of_another_type_leaves_former_versions_as_they_were(spark: SparkSession, table: IcebergTable) -> None:
    version = newest(table)
    assert table.columns() == {"cdc_key": "string", "a.b, c": "int", "price": "decimal(5,2)", "list": "array<int>"}
    assert table.types_of(COLUMNS) == table.columns()
    table.replace(table.rows().withColumn("a.b, c", fn.col("`a.b, c`").cast("string")), "text", 30)
    assert table.alter(StructType([*COLUMNS, StructField("more", IntegerType())]), "more")
    assert not table.alter(COLUMNS, "again")
    (now,) = (row for row in rows_in(table.folder) if row["cdc_key"] == "7")
    (then,) = (row for row in rows_in(table.folder, version) if row["cdc_key"] == "7")
    assert (now["a.b, c"], now["more"]) == ("7", None)
    assert (then["a.b, c"], "more" in then) == (7, False)


def test_of_two_writers_the_second_is_refused(spark: SparkSession, table: IcebergTable, lake: IcebergLake) -> None:
    other = lake.table("thing")
    assert other.exists()
    table.delete("cdc_key = '3'", "first")
    before = rows_in(table.folder)
    with pytest.raises(JobError, match="another process writes into"):
        other.delete("cdc_key = '4'", "second")
    assert rows_in(table.folder) == before
    assert len(before) == 29


def test_a_foreign_change_of_rows_is_noticed(table: IcebergTable, lake: IcebergLake) -> None:
    assert table.changes_of_others() == []
    with iceberg_table(table.folder) as foreign:
        foreign.delete("cdc_key = '3'")
    again = lake.table("thing")
    assert again.exists()
    assert again.changes_of_others() == ["overwrite"]


def test_old_versions_and_leftovers_are_removed_but_nothing_that_is_needed(
    spark: SparkSession, table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = newest(table)
    table.delete("cdc_key < '2'", "deleted")
    gone = newest(table)
    table.delete("cdc_key < '3'", "again")
    stale, young = table.folder / "data" / "part-stale.parquet", table.folder / "data" / "part-young.parquet"
    for each in (stale, young):
        each.touch()
    os.utime(stale, (time.time() - 90_000,) * 2)
    table.tend({needed})
    assert (stale.exists(), young.exists()) == (False, True)
    assert len(rows_in(table.folder, gone)) < 30, "all versions of the last hour stay"
    count, rows = len(list(table.folder.rglob("*.*"))), rows_in(table.folder)
    later = time.time_ns() + 2 * 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    table.tend({needed})
    assert len(list(table.folder.rglob("*.*"))) < count
    with pytest.raises(ValueError, match="not found"):
        rows_in(table.folder, gone)
    assert len(rows_in(table.folder, needed)) == 30
    assert rows_in(table.folder) == rows


def test_a_folder_of_others_is_refused(spark: SparkSession, table: IcebergTable, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "catalog.db").write_text("a text")
    with pytest.raises(JobError, match="is not a catalog of a mirror"):
        IcebergLake(spark, elsewhere)
    with pytest.raises(JobError, match="has a '#'"):
        IcebergLake(spark, tmp_path / "a#b")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "current.json").touch()
    with closing(IcebergLake(spark, tmp_path)) as lake:
        assert lake.table("taken").is_taken()
        shutil.copytree(table.folder / "metadata", tmp_path / "begun" / "metadata")  # killed in its first commit
        assert not lake.table("begun").is_taken()
        for each in (tmp_path / "begun").rglob("*.metadata.json"):
            each.write_text(each.read_text().replace(MARKS, "other."))
        assert lake.table("begun").is_taken()
        assert not lake.table("free").is_taken()
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "catalog.db").write_bytes((tmp_path / "catalog.db").read_bytes())
    (moved / "thing").mkdir()
    with closing(IcebergLake(spark, moved)) as lake, pytest.raises(JobError, match="names tables in"):
        lake.table("thing").exists()
