"""``cdc mirror --to iceberg:…``: tables that pyiceberg finds equal to their source, without Spark."""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror.folder import hold
from cdc.spark.mirror.iceberg import spark_types
from tests.integration.spark.lake_tables import cuts_in, iceberg_table, named_in, named_of, rows_in
from tests.integration.spark.mirrored_shop import (
    Changes,
    assert_cuts,
    assert_equal,
    batches,
    last_cut,
    mirror_process,
)
from tests.integration.spark.mirrors import job_for, run
from tests.integration.spark.test_delta import MIRROR, TIMEOUT_S, follow, shop
from tests.integration.spark.typed_values import differences, make_matrix
from tests.support.deployment import Deploy, Deployment
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.type_catalogue import VALUE_TYPES
from tests.support.type_matrix import PINNED

__all__ = ["shop"]

WRITTEN = "mirror.files_written:3"
"""The first three are those of the tables' first batch; nothing names them when the process dies."""


def iceberg_job(deployment: Deployment, lake: Path, **changes: object) -> MirrorJob:
    return job_for(deployment, lake).model_copy(update={"format": "iceberg", **changes})


def test_tables_follow_their_source_and_are_one_at_each_cut(
    spark: SparkSession, shop: Deployment, tmp_path: Path
) -> None:
    job, source, changes = iceberg_job(shop, tmp_path / "lake"), shop.source, Changes(shop.source)
    run(spark, job)
    assert_equal(shop, job)
    with changes.going_on():
        follow(spark, job, 2)
    assert assert_cuts(job, changes) >= 2
    source.execute("INSERT INTO client (id, born) VALUES (5000, '0044-03-15 BC'), (5001, '0001-01-01')")
    source.execute("TRUNCATE entry; INSERT INTO entry VALUES (0, 1, 1)")
    shop.wait_published()
    run(spark, job)
    assert_equal(shop, job)
    shop.stop()


@pytest.mark.parametrize("point", sampled((*MIRROR, WRITTEN), (WRITTEN,)))
def test_a_kill_changes_nothing_and_repeats_nothing(
    point: str, spark: SparkSession, spark_settings: SparkSettings, shop: Deployment, tmp_path: Path
) -> None:
    changes, log = Changes(shop.source), (tmp_path / "mirror.log").read_text
    changes.make()
    shop.wait_published()
    job = iceberg_job(shop, tmp_path / "lake", spark=spark_settings)
    with mirror_process(job, tmp_path, point) as process:
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL, log()
    changes.make()
    shop.wait_published()
    run(spark, job)
    assert_equal(shop, job)
    assert assert_cuts(job, changes) >= 1
    assert batches(job) >= len(last_cut(job))
    shop.stop()


@pytest.mark.long
def test_values_of_every_type(spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path) -> None:
    with database.connect(options=PINNED) as connection:
        count = make_matrix(connection)
        deployment = deploy(topics={"partitions": 2})
        deployment.start_bridge()
        deployment.wait_backfilled("public.matrix")
        run(spark, iceberg_job(deployment, tmp_path / "lake"))
        folder = tmp_path / "lake" / deployment.topic("public.matrix")
        rows = {row["id"]: {name: _without_zone(value) for name, value in row.items()} for row in rows_in(folder)}
        assert len(rows) == count
        with iceberg_table(folder) as table:
            kinds = spark_types(table.schema())
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
    job = iceberg_job(deployment, tmp_path / "lake", compact_every=1)
    folder = tmp_path / "lake" / deployment.topic("public.thing")
    run(spark, job)
    first, before = cuts_in(job)[-1]["version"], named_of(database, "thing")
    database.execute(
        "ALTER TABLE thing ALTER wide TYPE bigint, ALTER price TYPE numeric;"
        'ALTER TABLE thing ADD "at; last" timestamp, ADD more int;'
        "UPDATE thing SET wide = 10000000000, price = 1e30, \"at; last\" = '2026-01-01', more = 4 WHERE id = 1;"
        "UPDATE thing SET more = id WHERE id > 1"
    )
    deployment.wait_published()
    run(spark, job)
    assert named_in(folder, cuts_in(job)[-1]["version"]) == named_of(database, "thing")
    assert named_in(folder, first) == before, "a former version has its former columns"
    database.execute("ALTER TABLE thing RENAME more TO less; UPDATE thing SET less = 9 WHERE id = 2")
    deployment.wait_published()
    run(spark, job)
    held = {row["id"]: (row["more"], row["less"]) for row in rows_in(folder)}
    assert held == {1: (4, None), 2: (None, 9), 3: (3, None)}, "as in Delta: older rows say what they said"
    database.execute("ALTER TABLE thing ALTER part TYPE text; UPDATE thing SET part = '1e3' WHERE id = 1")
    deployment.wait_published()
    with pytest.raises(JobError, match=r"column 'part' of .* changed its type"):
        run(spark, job)
    run(spark, job.model_copy(update={"rebuild": True}))
    assert {row["id"]: row["part"] for row in rows_in(folder)} == {1: "1e3", 2: "2.5", 3: "3.5"}
    assert len(cuts_in(job)) == 1, "versions from before are no longer to be trusted"
    deployment.stop()


def test_nothing_is_written_into_a_folder_of_others(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE item (id int PRIMARY KEY); INSERT INTO item VALUES (1)")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled("public.item")
    files = tmp_path / "files"
    run(spark, job_for(deployment, files))
    before = sorted(files.rglob("*"))
    with pytest.raises(JobError, match="holds files that are not a table of Iceberg"):
        run(spark, iceberg_job(deployment, files))
    assert sorted(files.rglob("*")) == before
    job = iceberg_job(deployment, tmp_path / "lake")
    with hold(tmp_path / "lake"), pytest.raises(JobError, match="another process mirrors into"):
        run(spark, job)
    run(spark, job)
    for other, why in (("parquet", "holds an Iceberg table"), ("delta", "holds files that are not a table of Delta")):
        with pytest.raises(JobError, match=why):
            run(spark, job.model_copy(update={"format": other}))
    with iceberg_table(tmp_path / "lake" / deployment.topic("public.item")) as foreign:
        foreign.delete("cdc_key IS NOT NULL")
    with pytest.raises(JobError, match="another program changed rows of"):
        run(spark, job)
    run(spark, job.model_copy(update={"rebuild": True}))
    assert [row["id"] for row in rows_in(tmp_path / "lake" / deployment.topic("public.item"))] == [1]
    deployment.stop()
