"""Jobs that go on where they were, and topics that are not what they were: no ghost, no stale row without a word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import TopicChanged
from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.parquet import ParquetMirror
from cdc.spark.mirror.position import MicroBatch, Offsets
from cdc.spark.offsets import Extent
from cdc.spark.reconcile.kept_hashes import KeptHashes
from cdc.spark.report.model import TableReport
from cdc.spark.snapshot import newest
from tests.integration.spark.mirrors import assert_equal, job_for, run
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for as job_of
from tests.support.reconciling import reconciled, table_of
from tests.support.servers import Database
from tests.support.topic_settings import delete_records
from tests.support.waiting import eventually

TABLE = "public.item"
ANEW = r"topic \S+item was deleted and recreated since it was read, .* rebuild the copies with .*--rebuild"


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """A bridge that heals gaps, and a table with rows that are published."""
    deployment = deploy(topics={"partitions": 1}, source={"on_gap": "rebackfill"})
    database.execute("CREATE TABLE item (id int PRIMARY KEY, note text)")
    database.execute("INSERT INTO item SELECT n, 'first' FROM generate_series(1, 20) n")
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    return deployment


def make_topic_anew(shop: Deployment) -> None:
    """Delete it while the bridge is away, change rows, and let the bridge fill it beyond where it ended."""
    shop.stop()
    admin, topic = AdminClient({"bootstrap.servers": shop.bootstrap}), shop.topic(TABLE)
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)
    shop.source.execute("DELETE FROM item WHERE id <= 5; UPDATE item SET note = 'changed' WHERE id <= 10")
    shop.start_bridge()
    shop.wait_published()  # else the backfill that is done may be the one of the old topic
    shop.wait_backfilled(TABLE)
    for note in "abc":
        shop.source.execute(f"UPDATE item SET note = '{note}' WHERE id > 10")
    shop.wait_published()


def test_a_topic_made_anew_while_the_mirror_was_away(spark: SparkSession, shop: Deployment, tmp_path: Path) -> None:
    job = job_for(shop, tmp_path / "lake", [TABLE], checkpoint=str(tmp_path / "checkpoint"))
    run(spark, job)
    assert_equal(shop, job, [TABLE])
    make_topic_anew(shop)
    with pytest.raises(TopicChanged, match=ANEW):
        run(spark, job)
    run(spark, job.model_copy(update={"rebuild": True}))
    assert_equal(shop, job, [TABLE])
    shop.source.execute("DELETE FROM item WHERE id > 15")
    shop.wait_published()
    run(spark, job)
    assert_equal(shop, job, [TABLE])
    shop.stop()


@pytest.mark.long
def test_records_that_were_deleted_while_the_mirror_was_away(
    spark: SparkSession, shop: Deployment, tmp_path: Path
) -> None:
    job = job_for(shop, tmp_path / "lake", [TABLE])
    run(spark, job)
    shop.source.execute("DELETE FROM item WHERE id <= 5")
    shop.wait_published()
    shop.stop()
    delete_records(shop.bootstrap, shop.topic(TABLE))
    with pytest.raises(TopicChanged, match=r"lost records \(partition 0 now begins at offset \d+\).* --rebuild"):
        run(spark, job)


@pytest.mark.long
def test_a_topic_made_anew_under_a_running_mirror(
    spark: SparkSession,
    shop: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind the first of several batches: the ones after it would be of another topic."""
    apply: Callable[..., bool] = ParquetMirror.apply

    def applied(self: Any, topic: str, latest: DataFrame, batch: MicroBatch, ends: Offsets) -> bool:
        done = apply(self, topic, latest, batch, ends)
        if batch.number == 0:
            make_topic_anew(shop)
        return done

    job: MirrorJob = job_for(shop, tmp_path / "lake", [TABLE], records_per_batch=5)
    with monkeypatch.context() as patched:
        patched.setattr(ParquetMirror, "apply", applied)
        with pytest.raises(
            TopicChanged, match=r"topic \S+item was deleted and recreated while it was read; .*--rebuild"
        ):
            run(spark, job)
    with pytest.raises(TopicChanged, match=ANEW):
        run(spark, job)
    run(spark, job.model_copy(update={"rebuild": True}))
    assert_equal(shop, job, [TABLE])
    shop.stop()


def test_a_copy_that_does_not_say_of_which_topic_it_is(spark: SparkSession, shop: Deployment, tmp_path: Path) -> None:
    job = job_for(shop, tmp_path / "lake", [TABLE])
    run(spark, job)
    folder = tmp_path / "lake" / shop.topic(TABLE)
    manifest = manifests.read(folder, shop.topic(TABLE))
    manifests.write(folder, replace(manifest, position=replace(manifest.position, topic_id="")))
    with pytest.raises(TopicChanged, match=r"does not say which topic it was made from\), .* --rebuild"):
        run(spark, job)
    shop.stop()


def test_a_topic_made_anew_while_a_snapshot_reads_it(
    spark: SparkSession, shop: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, looks = newest.keep, list[int]()

    def kept(records: DataFrame) -> DataFrame:
        found = keep(records)
        looks.append(found.count())
        if len(looks) == 1:
            make_topic_anew(shop)
        return found

    monkeypatch.setattr(newest, "keep", kept)
    snapshots = Snapshots(spark, shop, tmp_path / "snapshots")
    with pytest.raises(TopicChanged, match=r"topic \S+item was deleted and recreated while it was read; start again"):
        snapshots.take(TABLE)
    assert list(snapshots.folder.glob("[!.]*")) == []
    assert snapshots.rows(TABLE) == sorted(shop.source.execute("SELECT * FROM item"))
    shop.stop()


def test_a_reconciliation_that_remembers_another_topic(
    spark: SparkSession,
    spark_settings: SparkSettings,
    shop: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compared(name: str) -> TableReport:
        job = job_of(shop, tmp_path / name, spark_settings, replica=None, state=str(tmp_path / "state"))
        return table_of(reconciled(job, spark), TABLE)

    assert (compared("first").verdict, compared("second").mode) == ("identical", "incremental")
    make_topic_anew(shop)
    table = compared("anew")
    assert (table.verdict, table.mode, table.counts.identical) == ("identical", "full", 15), table
    brought_up_to = KeptHashes.brought_up_to

    def then_made_anew(self: KeptHashes, *asked: Any) -> tuple[DataFrame, Extent]:
        found = brought_up_to(self, *asked)
        make_topic_anew(shop)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(KeptHashes, "brought_up_to", then_made_anew)
        table = compared("meanwhile")
    assert table.verdict == "not_verified", table
    assert "was deleted and recreated while it was read" in table.reason
    table = compared("afterwards")
    assert (table.verdict, table.mode) == ("identical", "full"), table
    shop.stop()
