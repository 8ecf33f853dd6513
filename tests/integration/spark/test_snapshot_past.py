"""The past of a topic that the cleaner has really been through, and the command: rotation, and a kill in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.snapshot import AsOfLsn
from cdc.ops.jobs.launch import document
from cdc.spark.errors import PastErased
from cdc.spark.snapshot.folders import snapshots as finished
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy, Deployment
from tests.support.process_tree import family, send
from tests.support.servers import Database
from tests.support.spark_jvm import SHARED
from tests.support.waiting import eventually

TABLE = "public.account"
CLEANED_SOON = {
    "partitions": 1,
    "segment_ms": 200,
    "min_compaction_lag_ms": 0,
    "max_compaction_lag_ms": 500,
    "min_cleanable_dirty_ratio": 0.01,
}


def position(database: Database) -> str:
    lsn: str = database.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]
    return lsn


def rows_of(database: Database) -> list[tuple[object, ...]]:
    return sorted(database.execute("SELECT * FROM account"))


def started(deploy: Deploy, database: Database, **topics: object) -> Deployment:
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2))")
    database.execute("INSERT INTO account SELECT n, n FROM generate_series(1, 20) n")
    deployment = deploy(topics=topics)
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    return deployment


def test_an_erased_past_is_refused_and_now_is_exact(
    spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    deployment = started(deploy, database, **CLEANED_SOON)
    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    database.execute("UPDATE account SET balance = 0")
    lsn = position(database)
    kept = rows_of(database)
    database.execute("UPDATE account SET balance = id * 2")
    database.execute("DELETE FROM account WHERE id > 15")

    def superseded() -> bool:
        # Each transaction closes a segment, so that the cleaner may have the one before.
        database.execute("UPDATE account SET balance = balance + 1 WHERE id = 1")
        deployment.wait_published()
        zeros = [each for each in deployment.records(TABLE) if b'"balance":"0.00"' in (each.value or b"")]
        return not zeros

    eventually(superseded, 120, "the cleaner erases the first update")
    with pytest.raises(PastErased, match="compaction may have erased"):
        snapshots.take(TABLE, as_of=AsOfLsn(lsn=lsn))
    assert snapshots.rows(TABLE) == rows_of(database) != kept


def test_a_past_that_nothing_has_touched_is_told_after_much_traffic(
    spark: SparkSession, deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    deployment = started(deploy, database, partitions=2)
    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    states = {}
    for number in range(4):
        database.execute(f"UPDATE account SET balance = balance + 1 WHERE id % 4 <> {number}")
        database.execute(f"DELETE FROM account WHERE id = {number + 1}")
        database.execute(f"INSERT INTO account VALUES ({100 + number}, 0)")
        states[position(database)] = rows_of(database)
    deployment.wait_published()
    for lsn, rows in states.items():
        assert snapshots.rows(TABLE, AsOfLsn(lsn=lsn)) == rows


@pytest.mark.long
def test_the_command_goes_on_and_rotates(deploy: Deploy, database: Database, tmp_path: Path) -> None:
    deployment = started(deploy, database)
    folder = tmp_path / "rotated"
    (folder / "20200101T000000.000000Z").mkdir(parents=True)  # has our kind of name, and no manifest
    log = tmp_path / "command.log"
    command = [
        sys.executable, "-m", "cdc", "snapshot", TABLE, "--to", str(folder), "--every", "1s", "--keep", "1",
        "--master", "local[2]", "-c", str(deployment.config),
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            eventually(lambda: log.read_text().count("removed ") >= 1 or process.poll() is not None, 450, log.read_text)
            assert process.poll() is None, log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)  # which it did not obey behind the first run
            process.wait(60)
    assert len(finished(folder)) == 1
    assert (folder / "20200101T000000.000000Z").is_dir()
    manifest = json.loads((finished(folder)[-1] / "manifest.json").read_text())
    assert manifest["tables"][0]["rows"] == 20


@pytest.mark.long
def test_a_killed_run_leaves_nothing_that_counts(
    spark: SparkSession, spark_settings: SparkSettings, deploy: Deploy, database: Database, tmp_path: Path
) -> None:
    deployment = started(deploy, database)
    snapshots = Snapshots(spark, deployment, tmp_path / "killed")
    job = snapshots.job(TABLE, settings=spark_settings)
    log = tmp_path / "job.log"

    def run(environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "cdc.spark", "snapshot"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        assert process.stdin is not None
        process.stdin.write(document(job).encode())
        process.stdin.close()
        return process

    first = run()
    eventually(
        lambda: list(snapshots.folder.glob(".unfinished-*/*/_temporary")) or first.poll() is not None,
        120,
        log.read_text,
        is_momentary=True,
    )
    assert first.poll() is None, log.read_text()
    send(family(first.pid), signal.SIGKILL)
    assert first.wait(30) == -signal.SIGKILL
    assert finished(snapshots.folder) == []
    assert list(snapshots.folder.glob(".unfinished-*"))
    second = run(SHARED.environment())
    assert second.wait(180) == 0, log.read_text()
    (only,) = finished(snapshots.folder)
    assert list(snapshots.folder.glob(".unfinished-*")) == []
    assert len(spark.read.parquet(str(only / deployment.topic(TABLE))).collect()) == 20
