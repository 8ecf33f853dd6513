"""Topics where records lie in partitions in which their keys do not belong: another program's, or all the bridge's."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

from cdc.contract.partition import partition_of
from cdc.contract.record import RepairKey
from cdc.spark.errors import TopicUnreadable
from tests.integration.bridge.backfill.test_repair import id_key, repair
from tests.integration.spark.mirrors import job_for, run
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.test_mirror_strays import PARTITIONS, STRAY, TABLE, published
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.topic_damage import Damage


@pytest.mark.long
def test_a_snapshot_holds_the_rows_beside_strays_and_when_these_are_repaired(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """It was refused, and the repair that the refusal asked for did not help while its tombstones were there."""
    deployment = published(database, deploy)
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


def test_a_topic_that_was_given_partitions_is_refused(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """The bridge's own rows would pass for another program's: most of them would be missing."""
    deployment = published(database, deploy)
    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    job = snapshots.job(TABLE)
    deployment.wait_published()  # PostgreSQL writes WAL by itself, which a bridge that is stopped cannot reach
    deployment.stop()
    topic, admin = deployment.topic(TABLE), AdminClient({"bootstrap.servers": deployment.bootstrap})
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(30)
    told = "5 partitions now, but had 3 when its keys were published"
    with pytest.raises(TopicUnreadable, match=told):
        snapshots.run(job)
    with pytest.raises(TopicUnreadable, match=told):
        run(spark, job_for(deployment, tmp_path / "lake", [TABLE]))
