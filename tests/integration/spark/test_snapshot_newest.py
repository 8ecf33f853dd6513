"""The newest state of a table that is written while it is read, for longer than the cleaner waits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.contract.jobspec.snapshot import AsOfNow
from cdc.spark.snapshot import newest
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.waiting import eventually

TABLE = "public.account"
LAG_S = 30


@pytest.mark.long
def test_an_insert_only_table_that_is_written_while_it_is_read(
    spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2))")
    database.execute("INSERT INTO account SELECT n, n FROM generate_series(1, 100) n")
    deployment = deploy(topics={"partitions": 2, "min_compaction_lag_ms": LAG_S * 1000})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    keep, looks = newest.keep, list[int]()

    def written_meanwhile(records: DataFrame) -> DataFrame:
        kept = keep(records)
        looks.append(kept.count())
        first = 100 * len(looks)
        database.execute(f"INSERT INTO account SELECT n, n FROM generate_series({first + 1}, {first + 100}) n")
        deployment.wait_published()
        if len(looks) == 1:
            read = time.monotonic()
            eventually(lambda: time.monotonic() > read + LAG_S, LAG_S + 10)
        return kept

    monkeypatch.setattr(newest, "keep", written_meanwhile)
    manifest, found = Snapshots(spark, deployment, tmp_path / "snapshots").take(TABLE, as_of=AsOfNow())
    # Each look but the first is young, and what comes after it does not matter any more.
    assert looks[:2] == [100, 100]
    assert len(looks) < newest.ROUNDS
    rows = sorted(tuple(row)[:-1] for row in found[TABLE].collect())
    position = int(manifest.tables[0].rows)
    assert position % 100 == 0
    assert 200 <= position <= 100 * len(looks)
    assert rows == sorted(database.execute(f"SELECT * FROM account WHERE id <= {position}"))
