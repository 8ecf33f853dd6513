"""Snapshots of a live database: full rows against what the source printed, and states that the test kept."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.jobspec.snapshot import AsOfLsn, AsOfOffsets, AsOfTime
from cdc.spark.errors import JobError, NotCaughtUp, PastErased
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.typed_values import differences, make_matrix
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.type_catalogue import VALUE_TYPES
from tests.support.type_matrix import PINNED

TABLE = "public.account"


@pytest.fixture
def snapshots(spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path) -> Snapshots:
    """Of a table that has rows from before the bridge; the bridge runs."""
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2), note text)")
    database.execute("INSERT INTO account SELECT n, n, 'old' FROM generate_series(1, 50) n")
    database.execute("CREATE TABLE other (id int PRIMARY KEY, balance numeric(12,2))")
    deployment = deploy(topics={"partitions": 3})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE, "public.other")
    return Snapshots(spark, deployment, tmp_path / "snapshots")


def source_rows(database: Database, table: str = "account") -> list[Any]:
    return sorted(database.execute(f"SELECT * FROM {table}"))


def test_every_type_comes_back_as_the_source_prints_it(
    spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    with database.connect(options=PINNED) as connection:
        count = make_matrix(connection)
        deployment = deploy(topics={"partitions": 2})
        deployment.start_bridge()
        deployment.wait_backfilled("public.matrix")
        manifest, found = Snapshots(spark, deployment, tmp_path / "s").take("public.matrix")
        frame = found["public.matrix"]
        rows = {row["id"]: row for row in frame.collect()}
        assert manifest.tables[0].rows == len(rows) == count
        typed = {field.name: field for field in frame.schema.fields}
        assert typed["numeric(12,3)"].dataType.simpleString() == "decimal(12,3)"
        assert typed["numeric"].dataType.simpleString() == "string"
        assert "text" in typed["numeric"].metadata["note"]
        assert typed["timestamptz"].dataType.simpleString() == "timestamp"
        assert typed["timestamp"].dataType.simpleString() == "timestamp_ntz"
        assert typed["integer[]"].dataType.simpleString() == "array<int>"
        kinds = {name: typed[name].dataType.simpleString() for name in VALUE_TYPES}
        different, beyond_count = differences(connection, kinds, rows)
    assert different == [], sorted({each[0] for each in different})
    assert beyond_count > 10


def test_as_of_now_an_lsn_a_time_and_offsets(snapshots: Snapshots, database: Database) -> None:
    deployment = snapshots.deployment
    states: list[tuple[LSN, int, list[Any]]] = []
    changes = (
        # First: behind the cleaner's lag a changed key makes what is before it unknown, see cdc.spark.snapshot.past.
        "UPDATE account SET id = id + 1000 WHERE id % 7 = 0",
        "INSERT INTO account SELECT n, n, 'new' FROM generate_series(51, 60) n",
        "UPDATE account SET balance = balance + 0.5 WHERE id % 3 = 0",
        "DELETE FROM account WHERE id % 5 = 0",
        "INSERT INTO account SELECT n, n, 'again' FROM generate_series(5, 60, 10) n",
    )
    for change in changes:
        database.execute(change)
        (lsn, now_us), *_ = database.execute(
            "SELECT pg_current_wal_insert_lsn()::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )
        states.append((LSN.parse(lsn), now_us, source_rows(database)))
    assert snapshots.rows(TABLE) == source_rows(database)
    deployment.wait_published()
    for lsn, now_us, rows in states:
        assert snapshots.rows(TABLE, AsOfLsn(lsn=str(lsn))) == rows
        assert snapshots.rows(TABLE, AsOfTime(time_us=now_us)) == rows
    ends = snapshots.take(TABLE)[0].tables[0].end_offsets
    offsets = AsOfOffsets(offsets={deployment.topic(TABLE): dict(enumerate(ends))})
    database.execute("DELETE FROM account")
    deployment.wait_published()
    manifest, found = snapshots.take(TABLE, as_of=offsets)
    assert sorted(tuple(row)[:-1] for row in found[TABLE].collect()) == states[-1][2]
    assert manifest.lsn is None
    assert snapshots.rows(TABLE) == []


def test_tables_are_of_one_commit_while_others_write(snapshots: Snapshots, database: Database) -> None:
    database.execute("INSERT INTO other SELECT n, -n FROM generate_series(1, 50) n")
    both = "UPDATE account SET balance = balance + {0}; UPDATE other SET balance = balance - {0}"
    for number in range(10):
        database.execute(both.format(number))
    manifest, found = snapshots.take(TABLE, "public.other")
    sums = [frame.groupBy().sum("balance").collect()[0][0] for frame in found.values()]
    assert sum(sums) == 0
    assert [each.rows for each in manifest.tables] == [50, 50]
    again, _ = snapshots.take(TABLE, "public.other")
    assert [each.hash for each in again.tables] == [each.hash for each in manifest.tables]
    database.execute("UPDATE other SET balance = 0 WHERE id = 1")
    changed, _ = snapshots.take(TABLE, "public.other")
    assert changed.tables[0].hash == manifest.tables[0].hash
    assert changed.tables[1].hash != manifest.tables[1].hash


def test_points_that_cannot_be_answered_are_refused(snapshots: Snapshots, database: Database) -> None:
    with pytest.raises(PastErased, match="holds every row only from"):
        snapshots.take(TABLE, as_of=AsOfLsn(lsn="0/100"))
    with pytest.raises(NotCaughtUp, match="has published only up to"):
        snapshots.take(TABLE, as_of=AsOfLsn(lsn="FFFF/0"))
    future = int(datetime(2999, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    with pytest.raises(JobError, match="in the future"):
        snapshots.take(TABLE, as_of=AsOfTime(time_us=future))
    with pytest.raises(JobError, match="has no offset 99999"):
        snapshots.take(TABLE, as_of=AsOfOffsets(offsets={snapshots.deployment.topic(TABLE): {0: 99999}}))
    assert list(snapshots.folder.glob("[!.]*")) == []
    assert list(snapshots.folder.glob(".unfinished*")) == []
