"""Records in partitions where their keys do not belong, and the tombstones that a repair leaves there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.mirror import MirrorJob
from cdc.contract.partition import partition_of
from cdc.contract.record import RepairKey
from cdc.lab.proof.comparison import Rows, describe, pinned, table_rows
from tests.integration.bridge.backfill.test_repair import id_key, repair
from tests.integration.spark.mirrors import job_for, lake_rows, run
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.topic_damage import Damage

TABLE, PARTITIONS = "public.item", 3
STRAY = 2
"""Where another program, with another partitioner, writes."""


def published(database: Database, deploy: Deploy) -> Deployment:
    """Thirty rows, among three partitions."""
    deployment = deploy(topics={"partitions": PARTITIONS})
    database.execute("CREATE TABLE item (id int PRIMARY KEY, note text)")
    database.execute("INSERT INTO item SELECT n, 'right' FROM generate_series(1, 30) n")
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    return deployment


def rows_of(deployment: Deployment, job: MirrorJob) -> tuple[Rows, Rows]:
    """The source's, and the copy's."""
    with pinned(deployment.source.dsn) as source:
        shape = describe(source, TABLE)
        rows = table_rows(source, shape)
    return rows, lake_rows(job, deployment.topic(TABLE), shape)


@pytest.mark.long
def test_a_copy_holds_the_rows_beside_strays_and_when_these_are_repaired(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """Of a key's records the one with the greatest offset counted, wherever it lies: the tombstone took the row."""
    deployment = published(database, deploy)
    keys = [key for number in range(1, 31) if partition_of(key := id_key(number), PARTITIONS) != STRAY]
    header = next(each.header for each in deployment.records(TABLE))
    damage = Damage(deployment)
    for note in ("once", "twice", "thrice"):
        for key in keys:
            damage.write(TABLE, key, b'%b,"note":"%b"}' % (key[:-1], note.encode()), STRAY, header)
    damage.done()
    job = job_for(deployment, tmp_path / "lake", [TABLE])
    run(spark, job)
    source, copy = rows_of(deployment, job)
    assert copy == source, "beside strays"
    repair(deployment, TABLE, [RepairKey(key, STRAY) for key in keys])
    for again in (False, True):
        run(spark, job.model_copy(update={"rebuild": again}))
        source, copy = rows_of(deployment, job)
        assert copy == source, f"repaired, {again=}"
    deployment.stop()
