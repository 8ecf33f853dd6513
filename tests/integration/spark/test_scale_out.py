"""The mirror by many executors: source = fold = lake by full rows, whatever dies on the way."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.ops.jobs.launch import document
from cdc.spark.errors import JobError
from cdc.spark.mirror import manifest as manifests
from tests.integration.spark.mirrors import assert_equal, job_for, run
from tests.support.deployment import Deploy
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.type_catalogue import CUSTOM_TYPES
from tests.support.type_matrix import MORE_TYPES, PINNED, matrix_tables
from tests.support.waiting import eventually
from tests.support.workload import Workload

RECORDS_PER_BATCH = 70
"""Of some 200: a key's move and what follows it come in several batches."""
KILLS = times(1, soak=8)
NOTES_LOST = times(0, soak=1)
"""After which kill Spark's notes are lost, so that the lake's own offsets count."""
PAUSE_S = times(0.2, soak=0.01)
"""Between two transactions, so that the load leaves some of the machine to what is tested."""


@pytest.mark.long
def test_every_type_arrives_as_it_is(spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path) -> None:
    """Insert, update, move and delete of every type, NULLs and JSON nulls among them; then a column more."""
    deployment = deploy(topics={"partitions": 2})
    with database.connect(options=PINNED) as connection:
        connection.execute(MORE_TYPES.encode())
        connection.execute("CREATE TABLE other.named (id integer PRIMARY KEY)")
        connection.execute("CREATE TABLE public.named (id integer PRIMARY KEY)")
        tables = [each for each in matrix_tables(connection) if each.full]
        for table in tables:
            table.create(connection)
        names = [table.qualified for table in tables]
        deployment.start_bridge()
        for table in tables:
            table.insert(connection)
        deployment.wait_published()
        job = job_for(deployment, tmp_path / "lake", names)
        run(spark, job)
        assert_equal(deployment, job, names)
        for table in tables:
            table.update(connection)
        connection.execute('ALTER TABLE public."scalars full" ADD COLUMN later numeric')
        connection.execute('UPDATE public."scalars full" SET later = id * 1.10 WHERE id > 2')
        for table in tables:
            table.delete(connection)
        deployment.wait_published()
        job = job_for(deployment, tmp_path / "lake", names, records_per_batch=RECORDS_PER_BATCH)
        run(spark, job)
        assert_equal(deployment, job, names)
    deployment.stop()


class Killed:
    """``python -m cdc.spark mirror`` as a process that is killed."""

    def __init__(self, job: MirrorJob, log: Path) -> None:
        self._job = job
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cdc.spark", "mirror"], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        assert self.process.stdin is not None
        self.process.stdin.write(document(self._job).encode())
        self.process.stdin.close()

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text()[-4000:]
        self.process.kill()
        self.process.wait(30)


def written(job: MirrorJob) -> int:
    """How far the tables' positions are, for telling that it goes on."""
    files = [manifests.read(Path(job.path) / table.topic, table.topic) for table in job.tables]
    return sum(sum(each.position.offsets.values()) for each in files)


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_again_and_again_under_load(
    spark: SparkSession,
    spark_settings: SparkSettings,
    database: Database,
    deploy: Deploy,
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: SEED={seed}\n")
    rng = random.Random(seed)
    database.execute(CUSTOM_TYPES)
    deployment = deploy(topics={"partitions": 2}, source={"tables": ["public.*"]})
    with database.connect() as connection:
        workload = Workload(connection, seed, table_count=3)
        names = [table.qualified for table in workload.tables]
        deployment.start_bridge()
        for _ in range(30):
            workload.transaction()
        deployment.wait_published()
        names = [name for name in names if deployment.records(name)]
        checkpoint = tmp_path / "checkpoint"
        job = job_for(
            deployment, tmp_path / "lake", names, spark_settings,
            once=False, interval_s=0, records_per_batch=40, checkpoint=str(checkpoint),
        )  # fmt: skip
        process = Killed(job, tmp_path / "mirror.log")
        stop, died = threading.Event(), []

        def load() -> None:
            try:
                while not stop.wait(PAUSE_S):
                    workload.transaction()
            except Exception as error:  # noqa: BLE001 - handed to the test
                died.append(error)

        writer = threading.Thread(target=load)
        writer.start()
        try:
            for kill in range(KILLS):
                before = written(job)
                process.start()
                eventually(lambda: written(job) > before, 600, (tmp_path / "mirror.log").read_text)
                stop.wait(rng.uniform(0, 2))
                process.kill()
                if kill == NOTES_LOST:
                    shutil.rmtree(checkpoint, ignore_errors=True)
        finally:
            stop.set()
            writer.join()
        assert died == []
        deployment.wait_published()
        run(spark, job.model_copy(update={"once": True, "records_per_batch": 5000}))
        assert_equal(deployment, job, names)
    deployment.stop()


def test_a_lake_from_a_backup_and_a_rebuild(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """Spark's notes are ahead of the rows: the rows' own offsets count, and nothing is left out."""
    deployment = deploy()
    database.execute("CREATE TABLE item (id int PRIMARY KEY, note text)")
    deployment.start_bridge()
    database.execute("INSERT INTO item SELECT n, 'first' FROM generate_series(1, 20) n")
    deployment.wait_published()
    lake, kept, topic = tmp_path / "lake", tmp_path / "kept", deployment.topic("public.item")
    job = job_for(deployment, lake, ["public.item"], checkpoint=str(tmp_path / "checkpoint"))
    run(spark, job)
    shutil.copytree(lake, kept)
    for note in ("second", "third"):
        database.execute(f"UPDATE item SET note = '{note}' WHERE id <= 5; DELETE FROM item WHERE id = length('{note}')")
        deployment.wait_published()
        run(spark, job)
    shutil.rmtree(lake)
    kept.rename(lake)
    database.execute("INSERT INTO item VALUES (100, 'last')")
    deployment.wait_published()
    run(spark, job)
    assert_equal(deployment, job, ["public.item"])
    for file in (lake / topic).rglob("*.parquet"):
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).slice(1), file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    run(spark, job.model_copy(update={"rebuild": True}))
    assert_equal(deployment, job, ["public.item"])

    def away_for_years() -> None:
        manifest = manifests.read(lake / topic, topic)
        manifests.write(lake / topic, replace(manifest, position=replace(manifest.position, current_ms=1)))

    # Nothing is missed while nothing was written.
    away_for_years()
    run(spark, job)
    assert manifests.read(lake / topic, topic).position.current_ms > 1
    away_for_years()
    database.execute("DELETE FROM item WHERE id = 100")
    deployment.wait_published()
    with pytest.raises(JobError, match=r"may have missed deletes; rebuild the copies with .*--rebuild"):
        run(spark, job)
    deployment.stop()


def test_a_record_that_is_not_ours_is_named(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    deployment = deploy(topics={"partitions": 1})
    database.execute("CREATE TABLE item (id int PRIMARY KEY, note text)")
    deployment.start_bridge()
    database.execute("INSERT INTO item VALUES (1, 'one')")
    deployment.wait_published()
    deployment.stop()
    producer = Producer({"bootstrap.servers": deployment.bootstrap})
    producer.produce(deployment.topic("public.item"), key=b'{"id":2}', value=b'{"id":2,"note":null}')
    producer.flush(30)
    with pytest.raises(JobError, match=r'partition 0, offset \d+, key .*"id":2.*no header cdc'):
        run(spark, job_for(deployment, tmp_path / "lake"))
    assert (
        manifests.read(tmp_path / "lake" / deployment.topic("public.item"), deployment.topic("public.item")).changes
        == ()
    )
