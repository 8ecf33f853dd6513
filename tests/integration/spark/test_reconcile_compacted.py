"""A topic that the cleaner has really been through: what is left of it is still the table, or cannot be judged."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import Database
from tests.support.topic_damage import Damage
from tests.support.waiting import eventually

TABLE = "public.account"
LAG_MS = 15_000
"""More than the margin for clocks, so that differences can be proven; less than a test is willing to wait."""


@pytest.fixture
def cleaned(deploy: Deploy, database: Database) -> Deployment:
    """A bridge beside a table, all of its rows changed and some deleted, until the cleaner has erased the changes."""
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2))")
    database.execute("INSERT INTO account SELECT n, n FROM generate_series(1, 500) n")
    deployment = deploy(
        topics={
            "partitions": 2,
            "segment_ms": 500,
            "min_compaction_lag_ms": LAG_MS,
            "max_compaction_lag_ms": LAG_MS,
            "min_cleanable_dirty_ratio": 0.01,
        }
    )
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    database.execute("UPDATE account SET balance = 0.25")
    database.execute("UPDATE account SET balance = id * 2")
    database.execute("DELETE FROM account WHERE id > 450")

    def erased() -> bool:
        # Each transaction closes a segment, so that the cleaner may have those before.
        database.execute("UPDATE account SET balance = balance + 1 WHERE id <= 4")
        deployment.wait_published()
        values = [each.value or b"" for each in deployment.records(TABLE)]
        return not any(b'"balance":"0.25"' in value for value in values)

    eventually(erased, 180, "the cleaner erases the first update")
    return deployment


@pytest.mark.pg(16, matrix=False)
@pytest.mark.timeout(900)
def test_what_the_cleaner_left_is_the_table_and_damage_is_found_in_it(
    cleaned: Deployment, database: Database, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    records = cleaned.records(TABLE)
    offsets = {(each.partition, each.offset) for each in records}
    assert len(records) < 3 * 500, "nothing was cleaned"
    report = reconciled(job_for(cleaned, tmp_path / "report", spark_settings, replica=None), spark)
    table = table_of(report, TABLE)
    assert report.verdict == "identical", (table.reason, table.counts, table.samples)
    assert table.counts.identical == table.counts.source_rows == 450
    assert table.counts.tombstones + table.counts.live_keys <= len(offsets)

    newest = {each.key: each for each in records}
    damage = Damage(cleaned)
    damage.write(TABLE, b'{"id":100}', None, header=newest[b'{"id":100}'].header)
    damage.done()
    code, said = run_command(cleaned, tmp_path / "damaged", "--no-replica")
    assert code == 1, said
    assert "1 of" in said or "missing" in said, said
    cleaned.stop()
