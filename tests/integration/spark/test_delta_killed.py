"""``cdc mirror --to delta:…``, killed again and again while its tables change and are altered."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from tests.integration.spark.delta_shop import (
    ROWS,
    SCHEMA,
    TABLES,
    Changes,
    assert_cuts,
    batches,
    mirror_process,
)
from tests.integration.spark.mirrors import job_for, run
from tests.support.deployment import Deploy
from tests.support.servers import Database

KILLED_S = 600
ALTER_EVERY = 20
POINTS = ("after_table_commit:5",)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_cut_of_a_mirror_that_is_killed_while_tables_are_altered_has_every_row(
    spark: SparkSession, spark_settings: SparkSettings, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """Every kill leaves what the next run goes on from; each cut, from before or after, has one transaction's rows."""
    database.execute(SCHEMA)
    deployment = deploy(topics={"partitions": 2})
    deployment.start_bridge()
    deployment.wait_backfilled(*TABLES)
    database.execute(ROWS)
    deployment.wait_published()
    changes, log = Changes(database, alter_every=ALTER_EVERY), (tmp_path / "mirror.log").read_text
    changes.make()
    job = job_for(deployment, tmp_path / "lake", spark=spark_settings, once=False, interval_s=0)
    job = job.model_copy(update={"format": "delta"})
    with changes.going_on():
        for point in POINTS:
            with mirror_process(job, tmp_path, f"mirror.{point}") as process:
                assert process.wait(KILLED_S) == -signal.SIGKILL, log()
    exact = assert_cuts(job, changes)
    assert exact >= len(POINTS)
    assert batches(job) >= len(POINTS) * len(TABLES)
    deployment.wait_published()
    run(spark, job.model_copy(update={"once": True}))
    assert assert_cuts(job, changes) > exact
    deployment.stop()
