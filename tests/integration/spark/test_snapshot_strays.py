"""Snapshots of a topic where another program wrote records into partitions in which their keys do not belong."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdc.contract.partition import partition_of
from cdc.record import RepairKey
from tests.integration.backfill.test_repair import id_key, repair
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.topic_damage import Damage

TABLE, PARTITIONS, STRAY = "public.item", 3, 2


def test_a_snapshot_holds_the_rows_beside_strays_and_when_these_are_repaired(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """It was refused, and the repair that the refusal asked for did not help while its tombstones were there."""
    deployment = deploy(topics={"partitions": PARTITIONS})
    database.execute("CREATE TABLE item (id int PRIMARY KEY, note text)")
    database.execute("INSERT INTO item SELECT n, 'right' FROM generate_series(1, 30) n")
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    keys = [key for number in range(1, 31) if partition_of(key := id_key(number), PARTITIONS) != STRAY]
    header = next(each.header for each in deployment.records(TABLE))
    damage = Damage(deployment)
    for key in keys:
        damage.write(TABLE, key, b'%b,"note":"wrong"}' % key[:-1], STRAY, header)
    damage.done()
    snapshots = Snapshots(spark, deployment, tmp_path)
    expected = [(number, "right") for number in range(1, 31)]
    assert snapshots.rows(TABLE) == expected, "beside strays"
    repair(deployment, TABLE, [RepairKey(key, STRAY) for key in keys])
    assert snapshots.rows(TABLE) == expected, "repaired"
    deployment.stop()
