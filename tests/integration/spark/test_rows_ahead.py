"""Topics as ``delivery: idempotent`` leaves them: parts of transactions beyond the progress, rows that came late."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.header import DELETE, INSERT, UPDATE, HeaderStamp, header_position
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.spark.errors import PastErased
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled, table_of
from tests.support.servers import Database
from tests.support.topic_damage import Damage

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]

TABLE = "public.account"
LAG_MS = 900_000
"""Longer than a run takes on a slow machine."""
FAR = 1 << 30
"""Bytes of WAL that no test writes."""


@pytest.fixture
def deployment(deploy: Deploy, database: Database) -> Deployment:
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance int)")
    database.execute("INSERT INTO account SELECT n, n FROM generate_series(1, 20) n")
    deployment = deploy(topics={"partitions": 2, "min_compaction_lag_ms": LAG_MS, "max_compaction_lag_ms": 2 * LAG_MS})
    deployment.deliver("idempotent")
    deployment.start()
    deployment.wait_backfilled(TABLE)
    return deployment


def plant(deployment: Deployment, lsn: int, xid: int) -> None:
    """Half of a transaction that updates rows 1 to 4, deletes row 5 and inserts row 100."""
    schema = dict(each.split(b"=") for each in deployment.records(TABLE)[0].header.split(b";"))[b"schema"].decode()
    stamp, damage = HeaderStamp(LSN(lsn), xid, 1_900_000_000_000_000), Damage(deployment)
    for seq, (key, op) in enumerate(((1, UPDATE), (2, UPDATE), (5, DELETE), (100, INSERT)), 1):
        value = None if op == DELETE else b'{"id":%d,"balance":-1}' % key
        damage.write(TABLE, b'{"id":%d}' % key, value, header=stamp.header(op, seq, schema))
    damage.done()


def repeat_oldest(deployment: Deployment, key: bytes) -> None:
    """What a bridge that stood still wrote when it woke up."""
    oldest = min(
        (each for each in deployment.records(TABLE) if each.key == key), key=lambda each: header_position(each.header)
    )
    damage = Damage(deployment)
    damage.write(TABLE, key, oldest.value, header=oldest.header)
    damage.done()


def test_half_a_transaction_beyond_the_progress_counts_nowhere_and_is_named(
    deployment: Deployment, database: Database, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    deployment.wait_mirrored()
    rows = sorted(database.execute("SELECT id, balance FROM account"))
    with database.connect() as connection, connection.transaction():
        connection.execute("UPDATE account SET balance = -1 WHERE id <= 4")
        (xid,) = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone() or (0,)
        plant(deployment, deployment.now() + FAR, xid)
        report = reconciled(job_for(deployment, tmp_path / "run", spark_settings, replica=None), spark)
        table = table_of(report, TABLE)
        # Rows ahead are of transactions that have committed: this one has not, so the bridge did not write them.
        assert (table.counts.identical, table.counts.in_flight, table.counts.differences) == (17, 0, 4), table
        assert {each.cause.partition(":")[0] for each in table.samples} == {"foreign record"}
        assert sorted(deployment.replica.execute("SELECT id, balance FROM account")) == rows, "held back"
        snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
        manifest, found = snapshots.take(TABLE)
        assert sorted(tuple(row)[:2] for row in found[TABLE].collect()) == rows
        assert manifest.lsn is not None
        assert LSN.parse(manifest.lsn) <= deployment.now()
    deployment.bridge.stop()
    database.execute("UPDATE account SET balance = -2 WHERE id = 7")
    report = reconciled(job_for(deployment, tmp_path / "dead", spark_settings, fence_timeout_s=2), spark)
    assert report.verdict == "not_verified", "nothing says that what is in the topic is all of it"


@pytest.mark.long
def test_a_row_that_came_late_is_the_topics_fault_and_nobody_elses(
    deployment: Deployment, database: Database, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    database.execute("UPDATE account SET balance = 50 WHERE id = 1")
    deployment.wait_mirrored()
    database.execute("UPDATE account SET balance = 51 WHERE id = 1")
    deployment.wait_mirrored()
    repeat_oldest(deployment, b'{"id":1}')
    rows = sorted(database.execute("SELECT id, balance FROM account"))
    assert Snapshots(spark, deployment, tmp_path / "snapshots").rows(TABLE) == rows

    report = reconciled(job_for(deployment, tmp_path / "run", spark_settings), spark)
    assert report.verdict == "different"
    table = table_of(report, TABLE)
    assert table.counts.value_mismatch == 1
    assert "stale version" in table.samples[0].cause
    assert table.replica is not None
    assert table.replica.identical == 20, "the sink left it out"


def test_a_late_row_that_may_have_erased_a_newer_one_is_not_taken_for_the_newest(
    deployment: Deployment, database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """As after a compaction: of the key there is only the late record, behind newer ones of others."""
    database.execute("UPDATE account SET balance = 50")
    deployment.wait_published()
    record = next(each for each in deployment.records(TABLE) if each.key == b'{"id":1}')
    schema = dict(each.split(b"=") for each in record.header.split(b";"))[b"schema"].decode()
    stamp = HeaderStamp(LSN(header_position(record.header).lsn - 8), 7, 1_700_000_000_000_000)
    damage = Damage(deployment)
    damage.write(TABLE, b'{"id":200}', b'{"id":200,"balance":1}', header=stamp.header(INSERT, 1, schema))
    damage.done()
    with pytest.raises(PastErased, match=r"suspended\s+bridge"):
        Snapshots(spark, deployment, tmp_path / "snapshots").take(TABLE)
