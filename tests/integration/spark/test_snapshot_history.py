"""A past that the state topic has lost, told by the table's history."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.snapshot import AsOfLsn, AsOfTime
from cdc.contract.naming import history_topic
from cdc.spark.errors import PastErased
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy
from tests.support.servers import Database

TABLE = "public.account"
CHANGES = (
    "UPDATE account SET balance = balance + 1",
    "UPDATE account SET id = id + 100 WHERE id % 2 = 0",
    "DELETE FROM account WHERE id % 3 = 0",
    "TRUNCATE account",
    "INSERT INTO account SELECT n, -n FROM generate_series(5, 15) n",
)


@pytest.mark.long
def test_every_commit_since_the_history_is_whole(
    spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2))")
    database.execute("INSERT INTO account SELECT n, n FROM generate_series(1, 20) n")
    (before,) = database.execute("SELECT pg_current_wal_flush_lsn()::text")[0]
    # Without a lag and without a pair, the state topic alone proves nothing of the past.
    deployment = deploy(topics={"history": [TABLE], "partitions": 2, "min_compaction_lag_ms": 0})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    states = []
    for change in CHANGES:
        database.execute(change)
        lsn, now_us = database.execute(
            "SELECT pg_current_wal_insert_lsn()::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        )[0]
        states.append((lsn, now_us, sorted(database.execute("SELECT * FROM account"))))
    deployment.wait_published()
    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    for lsn, _, rows in states:
        manifest, found = snapshots.take(TABLE, as_of=AsOfLsn(lsn=lsn))
        assert manifest.tables[0].topic == history_topic(deployment.topic(TABLE))
        assert sorted(tuple(row)[:-1] for row in found[TABLE].collect()) == rows
    _, now_us, rows = states[1]
    assert snapshots.rows(TABLE, AsOfTime(time_us=now_us)) == rows
    with pytest.raises(PastErased, match="every row only from"):
        snapshots.take(TABLE, as_of=AsOfLsn(lsn=before))
