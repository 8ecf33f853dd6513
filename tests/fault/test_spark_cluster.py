"""Jobs on a standalone Spark cluster: as right as here, also when a worker dies at work beside a writer."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet
import pytest

from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.position import LakePosition
from cdc.spark.report.document import from_json
from cdc.spark.report.model import TableReport
from tests.integration.spark.mirrors import assert_equal, job_for
from tests.support.commands import cdc
from tests.support.deployment import Deploy, Deployment
from tests.support.order_writer import TABLE, Writer
from tests.support.quick_java import QUICK
from tests.support.reconciling import run_command, table_of
from tests.support.servers import Database
from tests.support.spark_classes import classes
from tests.support.spark_cluster import SparkCluster, spark_cluster
from tests.support.spark_jvm import SHARED
from tests.support.topic_damage import Damage
from tests.support.waiting import eventually

KEPT_MS = 3_600_000
"""Nothing that a snapshot needs is cleaned away meanwhile: every key can be judged."""
TIMEOUT_S = 900
UPDATED = 10
"""Every so many rows one is updated."""
ROWS = 20_000
ONE_EXECUTOR = "spark.cores.max=1"
"""A second one's start is half of what a small job costs; the other jobs have two."""
BATCH = 5_000
"""Records in a batch of a mirror: it has work of several when its worker dies."""
STAGES = 8
"""In a batch: somewhere within so many the worker dies."""
FIRST_LOOK, SECOND_LOOK = 0, 5
"""Stages 0 and 1 read source and topic, 4 joins them; from 5 on differing keys are counted, read whole and judged."""
WRITERS_ROWS = 150
"""At most so many of its own does a writer leave: it inserts 50, and deletes those of three transactions ago."""
MISMATCHED, MISSING, EXTRA = b'{"id":7007}', b'{"id":7008}', b'{"id":-1}'
"""Keys that no writer touches."""
FORGED = b'{"id":7007,"name":"somebody","amount":1.00,"at":null,"note":null}'

pytestmark = [pytest.mark.long, pytest.mark.pg(16, matrix=False), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers of one core each, whose Python lacks this project."""
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as started, pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", str(started.python))
        yield started
    SHARED.close()


def on(cluster: SparkCluster) -> list[str]:
    """Options of a job that runs there. The name of this machine may lead elsewhere."""
    here = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.executor.memory=768m")
    few_cores = "spark.sql.shuffle.partitions=4"
    quick = f"spark.executor.extraJavaOptions={QUICK} {classes()}"
    return [
        "--master",
        cluster.master,
        *(each for setting in (*here, few_cores, quick) for each in ("--conf", setting)),
    ]


def captured(database: Database, deploy: Deploy, rows: int) -> Deployment:
    """A bridge that has published a table of so many rows, and then updates and deletes."""
    columns = "id bigint PRIMARY KEY, name text, amount numeric(12,2), at timestamptz, note text"
    database.execute(f"CREATE TABLE orders ({columns})")
    database.execute(
        "INSERT INTO orders SELECT i, 'customer ' || i, i %% 1000 + 0.50, NULL, NULL FROM generate_series(1, %s) i",
        (rows,),
    )
    lag = {"min_compaction_lag_ms": KEPT_MS, "max_compaction_lag_ms": 2 * KEPT_MS}
    deployment = deploy(topics={"partitions": 3, **lag})
    deployment.start_bridge()
    deployment.wait_backfilled(timeout_s=180)
    database.execute("UPDATE orders SET note = repeat(md5(id::text), 6) WHERE id %% %s = 0", (UPDATED,))
    database.execute("DELETE FROM orders WHERE id % 1000 = 1")
    deployment.assert_published(TABLE)
    return deployment


def damage(deployment: Deployment) -> None:
    """One key of each kind of difference."""
    damaging = Damage(deployment)
    damaging.write(TABLE, MISMATCHED, FORGED)
    damaging.write(TABLE, MISSING, None)
    damaging.write(TABLE, EXTRA, FORGED.replace(b"7007", b"-1"))
    damaging.done()


@contextmanager
def writing(database: Database) -> Iterator[Writer]:
    """Somebody changes rows from before the block to its end."""
    writer = Writer(database, 0)
    writer.start()
    try:
        eventually(lambda: writer.changes, message="the writer's first transaction")
        yield writer
    finally:
        writer.finish()


def reconciled(deployment: Deployment, cluster: SparkCluster, folder: Path) -> tuple[int, TableReport, str]:
    """Exit code, the table's part of the report, and what the command said."""
    code, said = run_command(deployment, folder, "--no-replica", *on(cluster), timeout_s=TIMEOUT_S)
    assert (folder / "report.json").exists(), said
    report = from_json((folder / "report.json").read_text(encoding="utf-8"))
    assert report.engine.master == cluster.master
    return code, table_of(report, TABLE), said


def assert_identical(found: tuple[int, TableReport, str], rows: int, more: int) -> None:
    """So many rows or up to ``more`` beyond them, all as they should be."""
    code, table, said = found
    assert (code, table.verdict) == (0, "identical"), said
    assert rows <= table.counts.source_rows <= rows + more
    assert table.counts.source_rows == table.counts.identical == table.counts.live_keys
    assert table.rounds[0].keys == 0


def assert_damage_found(found: tuple[int, TableReport, str], rows: int, more: int = 0) -> None:
    """All of it, and nothing else, in so many rows or up to ``more`` beyond them."""
    code, table, said = found
    assert (code, table.verdict) == (1, "different"), said
    differing = {(sample.difference, sample.key.encode()) for sample in table.samples}
    expected = {("value_mismatch", MISMATCHED), ("missing_in_topic", MISSING), ("extra_in_topic", EXTRA)}
    assert differing == expected
    counts = table.counts
    assert (counts.value_mismatch, counts.missing_in_topic, counts.extra_in_topic) == (1, 1, 1)
    assert rows <= counts.source_rows <= rows + more
    assert (counts.source_rows - counts.identical, counts.in_flight) == (2, 0)


def run(deployment: Deployment, cluster: SparkCluster, *arguments: str | Path) -> None:
    """Run a command there, and see it succeed."""
    done = cdc(*arguments, "-c", deployment.config, *on(cluster), timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_jobs_on_a_cluster(cluster: SparkCluster, database: Database, deploy: Deploy, tmp_path: Path) -> None:
    deployment = captured(database, deploy, ROWS)
    source = database.execute("SELECT id, name, amount, note FROM orders ORDER BY id")
    run(deployment, cluster, "health", "--json", tmp_path / "health.json", "--conf", ONE_EXECUTOR)
    health = json.loads((tmp_path / "health.json").read_text())["topics"][0]
    assert sum(each["live_keys"] for each in health["partitions"]) == len(source)

    run(deployment, cluster, "snapshot", TABLE, "--to", tmp_path / "snapshots")
    rows = [
        (row["id"], row["name"], row["amount"], row["note"])
        for file in (tmp_path / "snapshots").glob("*/*/*.parquet")
        for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()
    ]
    assert sorted(rows, key=lambda row: int(row[0])) == source

    # That all is identical is said on a cluster, too, beside a worker that dies.
    damage(deployment)
    assert_damage_found(reconciled(deployment, cluster, tmp_path / "different"), len(source))
    deployment.stop()


def reconciled_beside_a_death(
    deployment: Deployment, cluster: SparkCluster, folder: Path, first_stage: int
) -> tuple[int, TableReport, str]:
    """As ``reconciled``, while somebody writes and a worker dies in a task of this stage or a later one."""
    cluster.replace_dead()
    with ThreadPoolExecutor(1) as pool, writing(deployment.source) as writer:
        running = pool.submit(reconciled, deployment, cluster, folder)
        dead = cluster.kill_working(first_stage, TIMEOUT_S)
        changes = writer.changes
        found = running.result(TIMEOUT_S)
        assert writer.changes > changes
    assert dead.is_at(first_stage)
    return found


def test_a_worker_dies_at_the_first_look_at_all_rows(
    cluster: SparkCluster, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    deployment = captured(database, deploy, ROWS)
    rows = database.execute("SELECT count(*) FROM orders")[0][0]
    found = reconciled_beside_a_death(deployment, cluster, tmp_path / "first", FIRST_LOOK)
    assert_identical(found, rows, WRITERS_ROWS)
    deployment.stop()


def test_a_worker_dies_at_the_second_look_at_rows_that_differ(
    cluster: SparkCluster, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    deployment = captured(database, deploy, ROWS)
    damage(deployment)
    rows = database.execute("SELECT count(*) FROM orders")[0][0]
    found = reconciled_beside_a_death(deployment, cluster, tmp_path / "second", SECOND_LOOK)
    assert_damage_found(found, rows, WRITERS_ROWS)
    deployment.stop()


@contextmanager
def following(
    deployment: Deployment, cluster: SparkCluster, log: Path, lake: Path
) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """``cdc mirror`` at work there, until SIGTERM at the end; gives a way to wait for what it shall bring about."""
    batches = ("--interval", "0", "--records-per-batch", str(BATCH), "--compact-every", "2")
    command = [sys.executable, "-m", "cdc", "mirror", TABLE, "-c", str(deployment.config), "--to", f"parquet:{lake}"]
    with log.open("wb") as said:
        # This module's real start of a JVM that finds its way to a cluster: the other commands share one.
        process = subprocess.Popen([*command, *batches, *on(cluster)], stdout=said, stderr=said)

    def wait(condition: Callable[[], bool]) -> None:
        eventually(lambda: condition() or process.poll() is not None, TIMEOUT_S, log.read_text)
        assert process.poll() is None, log.read_text()

    try:
        yield wait
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, log.read_text()
        assert "stream execution thread" not in log.read_text()  # died in the middle of a batch
    finally:
        process.kill()


def test_a_worker_dies_while_a_mirror_follows(
    cluster: SparkCluster, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """In whatever stage of a batch: the same job goes on, and leaves nothing out."""
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: SEED={seed}\n")
    rng = random.Random(seed)
    deployment = captured(database, deploy, 3 * BATCH)
    topic, lake = deployment.topic(TABLE), tmp_path / "lake"

    def position() -> LakePosition:
        return manifests.read(lake / topic, topic).position

    cluster.replace_dead()
    with following(deployment, cluster, tmp_path / "mirror.log", lake) as wait:
        wait(lambda: position().batch >= 0)
        with writing(database) as writer:
            first_stage = cluster.stage() + rng.randint(1, STAGES)
            dead = cluster.kill_working(first_stage, TIMEOUT_S)
            assert dead.is_at(first_stage)
            batch, changes = position().batch, writer.changes
            wait(lambda: position().batch > batch + 1)
            assert writer.changes > changes
        deployment.wait_published()
        ends = {each.partition: each.offset + 1 for each in deployment.records(TABLE)}
        wait(lambda: dict(position().offsets) == ends)
    assert_equal(deployment, job_for(deployment, lake, [TABLE]), [TABLE])
    deployment.stop()
