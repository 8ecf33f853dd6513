"""``cdc mirror --to delta:…``: tables that a reader without Spark finds equal to their source."""

from __future__ import annotations

import signal
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.mirror import KEEP_DAYS, MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror.delta_sql import DeltaTable
from cdc.spark.mirror.folder import hold
from cdc.spark.mirror.main import mirror
from tests.integration.spark.lake_tables import cuts_in, rows_in, texts_in, texts_of
from tests.integration.spark.mirrored_shop import (
    ROWS,
    SCHEMA,
    TABLES,
    Changes,
    assert_cuts,
    assert_equal,
    batches,
    mirror_process,
)
from tests.integration.spark.mirrors import job_for, run
from tests.integration.spark.typed_values import differences, make_matrix
from tests.support.deployment import Deploy, Deployment
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.type_catalogue import VALUE_TYPES
from tests.support.type_matrix import PINNED
from tests.support.waiting import eventually

TIMEOUT_S = 300
MIRROR = (
    "mirror.before_table_commit:2",
    "mirror.after_table_commit:2",
    "mirror.after_compaction:1",
    "mirror.before_cut:1",
    "mirror.after_cut:1",
)


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """Three tables of a bridge that runs; their cuts are proven, however slow the machine is."""
    database.execute(SCHEMA)
    deployment = deploy(topics={"partitions": 2, "min_compaction_lag_ms": 3_600_000})
    deployment.start_bridge()
    deployment.wait_backfilled(*TABLES)
    database.execute(ROWS)
    deployment.wait_published()
    return deployment


def delta_job(deployment: Deployment, lake: Path, **changes: object) -> MirrorJob:
    return job_for(deployment, lake).model_copy(update={"format": "delta", **changes})


def follow(spark: SparkSession, job: MirrorJob, cuts: int) -> None:
    """Mirrors on, for so many cuts."""
    stop, late, before = threading.Event(), list[AssertionError](), len(cuts_in(job))

    def watch() -> None:
        try:
            eventually(lambda: len(cuts_in(job)) >= before + cuts * len(TABLES), TIMEOUT_S)
        except AssertionError as error:
            late.append(error)
        stop.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        mirror(spark, job.model_copy(update={"once": False, "interval_s": 0}), stop)
    finally:
        watcher.join()
    assert late == []


def test_tables_follow_their_source_and_are_one_at_each_cut(
    spark: SparkSession, shop: Deployment, tmp_path: Path
) -> None:
    job, source, changes = delta_job(shop, tmp_path / "lake"), shop.source, Changes(shop.source)
    run(spark, job)
    assert_equal(shop, job)
    with changes.going_on():
        follow(spark, job, 3)
    assert assert_cuts(job, changes) >= 2
    source.execute("INSERT INTO client (id, born) VALUES (5000, '0044-03-15 BC')")
    source.execute("TRUNCATE entry; INSERT INTO entry VALUES (0, 1, 1)")
    shop.wait_published()
    run(spark, job)
    assert_equal(shop, job)
    shop.stop()


@pytest.mark.parametrize("point", sampled(MIRROR, MIRROR[1:2]))
def test_a_killed_mirror_goes_on_where_each_table_stands(
    spark: SparkSession, spark_settings: SparkSettings, shop: Deployment, tmp_path: Path, point: str
) -> None:
    job = delta_job(shop, tmp_path / "lake", spark=spark_settings, records_per_batch=100, compact_every=2)
    with mirror_process(job, tmp_path, point) as process:
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL, (tmp_path / "mirror.log").read_text()
    if point == MIRROR[1]:
        assert batches(job) == 2
    run(spark, job)
    assert_equal(shop, job)
    assert batches(job) > 3
    shop.stop()


def test_every_type_is_as_the_source_prints_it(
    spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    with database.connect(options=PINNED) as connection:
        count = make_matrix(connection)
        deployment = deploy(topics={"partitions": 2})
        deployment.start_bridge()
        deployment.wait_backfilled("public.matrix")
        run(spark, delta_job(deployment, tmp_path / "lake"))
        folder = tmp_path / "lake" / deployment.topic("public.matrix")
        rows = {row["id"]: {name: _without_zone(value) for name, value in row.items()} for row in rows_in(folder)}
        assert len(rows) == count
        kinds = DeltaTable(spark, folder, KEEP_DAYS).columns()
        different, beyond_count = differences(connection, {name: kinds[name] for name in VALUE_TYPES}, rows)
    assert different == [], sorted({each[0] for each in different})
    assert beyond_count > 10
    deployment.stop()


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.long
def test_columns_that_are_added_renamed_and_altered(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE thing (id int PRIMARY KEY, wide int, price numeric(10,2), word text, part float8)")
    database.execute("INSERT INTO thing SELECT n, n, n + 0.5, 'word ' || n, n + 0.5 FROM generate_series(1, 3) n")
    deployment = deploy(topics={"partitions": 1})
    deployment.start_bridge()
    deployment.wait_backfilled("public.thing")
    job = delta_job(deployment, tmp_path / "lake", compact_every=1)
    folder = tmp_path / "lake" / deployment.topic("public.thing")
    run(spark, job)
    database.execute(
        "ALTER TABLE thing ALTER wide TYPE bigint, ALTER price TYPE numeric;"
        'ALTER TABLE thing ADD "at; last" timestamp, ADD more int;'
        "UPDATE thing SET wide = 10000000000, price = 1e30, \"at; last\" = '2026-01-01', more = 4 WHERE id = 1;"
        "UPDATE thing SET more = id WHERE id > 1"
    )
    deployment.wait_published()
    run(spark, job)
    assert texts_in(folder) == texts_of(database, "thing")
    database.execute("ALTER TABLE thing RENAME more TO less; UPDATE thing SET less = 9 WHERE id = 2")
    deployment.wait_published()
    run(spark, job)
    held = {row["id"]: (row["more"], row["less"]) for row in rows_in(folder)}
    assert held == {1: (4, None), 2: (None, 9), 3: (3, None)}, "as in Parquet: older rows say what they said"
    database.execute("ALTER TABLE thing ALTER part TYPE text; UPDATE thing SET part = '1e3' WHERE id = 1")
    deployment.wait_published()
    with pytest.raises(JobError, match=r"column 'part' of .* changed its type") as refused:
        run(spark, job)
    assert "--rebuild" in refused.value.remedy
    run(spark, job.model_copy(update={"rebuild": True}))
    assert {row["id"]: row["part"] for row in rows_in(folder)} == {1: "1e3", 2: "2.5", 3: "3.5"}
    assert len(cuts_in(job)) == 1, "versions from before are no longer to be trusted"
    database.execute('ALTER TABLE thing ADD "WORD" int; UPDATE thing SET "WORD" = 1')
    deployment.wait_published()
    with pytest.raises(JobError, match="'WORD'"):
        run(spark, job)
    deployment.stop()


def test_nothing_is_written_into_a_folder_of_others(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY); INSERT INTO item VALUES (1)")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled("public.item")
    topic = deployment.topic("public.item")
    files, tables, cuts = tmp_path / "files", tmp_path / "tables", tmp_path / "cuts"
    run(spark, job_for(deployment, files))
    spark.range(3).write.format("delta").save(str(tables / topic))
    spark.range(3).write.format("delta").save(str(cuts / "_cdc_cuts"))
    for place, why in (
        (files, "holds files that are not a table of Delta"),
        (tables, "holds another table than the mirror of"),
        (cuts, "_cdc_cuts holds another table"),
    ):
        before = sorted(place.rglob("*"))
        with pytest.raises(JobError, match=why):
            run(spark, delta_job(deployment, place))
        assert sorted(place.rglob("*")) == before
    with pytest.raises(JobError, match="holds a Delta table"):
        run(spark, job_for(deployment, tables))
    with hold(tmp_path / "lake"), pytest.raises(JobError, match="another process mirrors into"):
        run(spark, delta_job(deployment, tmp_path / "lake"))
    deployment.stop()
