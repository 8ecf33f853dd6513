"""What can be asked of a reconciliation, each against damage that is known; and how it ends when it cannot answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.launch import INTERRUPTED
from cdc.spark.errors import JobError
from cdc.spark.reconcile.ledger import PassDone, PassLedger
from cdc.spark.report.document import as_json
from cdc.spark.report.model import TableReport
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled, run_command
from tests.support.servers import Database
from tests.support.topic_damage import Damage
from tests.support.waiting import eventually

TABLE = "public.client"
ROWS = 300
pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]


@pytest.fixture
def damaged(database: Database, deploy: Deploy) -> Deployment:
    """A table whose row 7 has another city in the topic."""
    database.execute("CREATE TABLE client (id int PRIMARY KEY, name text, city text)")
    database.execute(f"INSERT INTO client SELECT n, 'name ' || n, 'secret-city' FROM generate_series(1, {ROWS}) n")
    deployment = deploy(topics={"partitions": 2})
    deployment.start_bridge()
    deployment.wait_backfilled()
    (record,) = (each for each in deployment.records(TABLE) if each.key == b'{"id":7}')
    assert record.value is not None
    damage = Damage(deployment)
    damage.write(TABLE, b'{"id":7}', record.value.replace(b"secret-city", b"secret-town"), header=record.header)
    damage.done()
    return deployment


@pytest.mark.long
def test_every_option_narrows_the_same_answer(
    damaged: Deployment, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    def job(name: str, **options: Any) -> ReconcileJob:
        return job_for(damaged, tmp_path / name, spark_settings, replica=None, **options)

    def run(name: str, **options: Any) -> TableReport:
        return reconciled(job(name, **options), spark).tables[0]

    whole = run("whole")
    assert (whole.verdict, whole.counts.source_rows, whole.counts.value_mismatch) == ("different", ROWS, 1)
    assert whole.samples[0].differing == ("city",)

    parts = run("parts", passes=3)
    assert parts.counts == whole.counts
    assert len({each.snapshot for each in parts.rounds}) >= 1
    assert len(parts.rounds) >= 3

    assert not (tmp_path / "parts" / "work").exists(), "whole rows outlive the run"

    without = run("where", where="id <> 7 AND id <= 100")
    assert (without.verdict, without.counts.source_rows) == ("identical", 99), without
    assert run("where-it", where="id BETWEEN 7 AND 8 -- so much for 7?").counts.value_mismatch == 1
    nothing = run("where-nothing", where="id < 0")
    assert nothing.verdict == "not_verified", nothing
    assert "id < 0 holds for no row" in nothing.reason

    names = run("names", columns={TABLE: ("name",)})
    assert (names.verdict, names.counts.source_rows) == ("identical", ROWS), names
    assert [each.name for each in names.columns_skipped] == ["id", "city"]
    assert run("cities", columns={TABLE: ("city",)}).counts.value_mismatch == 1
    some_cities = run("some-cities", columns={TABLE: ("city",)}, where="id > 100")
    assert (some_cities.verdict, some_cities.counts.source_rows) == ("identical", ROWS - 100), some_cities
    with pytest.raises(JobError, match="no published column 'ctiy'"):
        run("typo", columns={TABLE: ("ctiy",)})

    hidden = reconciled(job("hidden", redact=True), spark)
    assert hidden.tables[0].counts.value_mismatch == 1
    assert "secret-" not in as_json(hidden)
    assert "secret-" in as_json(reconciled(job("shown"), spark))
    left = {each for each in (tmp_path / "hidden").rglob("*") if each.is_file()}
    assert any(each.suffix == ".parquet" for each in left)
    for word in (b"secret-", b'{"id":7}', b"eyJpZCI6N30="):  # the key as Base64
        assert not [each for each in left if word in each.read_bytes()], word
    (shown,) = spark.read.parquet(str(tmp_path / "hidden" / "differing" / damaged.topic(TABLE))).collect()
    assert (shown["difference"], shown["op"], shown["differing"]) == ("value_mismatch", "r", ["city"])
    assert not {"key", "key_bytes", "key_hash", "source", "other"} & set(shown.asDict())

    late = run("late", max_snapshot_s=0.001)
    assert late.verdict == "not_verified"
    assert "the snapshot was held for" in late.reason, late.reason
    assert "--passes" in late.remedy
    damaged.stop()


@pytest.mark.long
def test_a_resumed_run_is_the_one_that_was_begun(
    damaged: Deployment, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def run(**options: Any) -> TableReport:
        return reconciled(
            job_for(damaged, tmp_path / "run", spark_settings, **{"replica": None, "passes": 2, **options}), spark
        ).tables[0]

    passes: list[int] = []
    keep = PassLedger.keep

    def dies_in_the_second(self: PassLedger, done: PassDone) -> None:
        passes.append(done.number)
        if len(passes) == 2:
            raise OSError(28, "No space left on device")
        keep(self, done)

    monkeypatch.setattr(PassLedger, "keep", dies_in_the_second)
    broken = run()
    assert (broken.verdict, passes) == ("not_verified", [0, 1]), broken
    assert "No space left on device" in broken.reason
    for options, name in (
        ({"where": "id > 100"}, "--where"), ({"passes": 4}, "--passes"), ({"columns": {TABLE: ("name",)}}, "--columns")
    ):  # fmt: skip
        with pytest.raises(JobError, match=f"a different comparison than the one that was begun: {name} was"):
            run(resume=True, **options)
    whole = run(resume=True)
    assert passes == [0, 1, 1], "the second alone is done again"
    assert (whole.verdict, whole.counts.source_rows, whole.counts.value_mismatch) == ("different", ROWS, 1)
    with pytest.raises(JobError, match="holds no run to resume"):
        run(resume=True)
    damaged.stop()


def test_what_cannot_be_answered_is_said(damaged: Deployment, tmp_path: Path) -> None:
    code, said = run_command(damaged, tmp_path / "no-such", "public.nowhere")
    assert code == 2, said
    assert "not captured: public.nowhere" in said
    assert "the captured tables are public.client" in said

    code, said = run_command(damaged, tmp_path / "no-master", "--master", "spark://127.0.0.1:9", timeout_s=60)
    assert code == 2, said
    assert "error: no Spark master answers at spark://127.0.0.1:9" in said

    (tmp_path / "file").touch()
    state = ("--state", str(tmp_path / "file" / "state"), "--no-replica")
    code, said = run_command(damaged, tmp_path / "no-state", *state)
    assert code == 2, said
    assert "NOT VERIFIED public.client: I/O error on file" in said, said

    damaged.stop()
    with psycopg.connect(damaged.source.dsn, autocommit=True) as connection:
        connection.execute("UPDATE client SET name = 'nobody publishes this' WHERE id = 1")
    code, said = run_command(damaged, tmp_path / "no-bridge", "--fence-timeout", "3")
    assert code == 2, said
    assert "NOT VERIFIED public.client: the bridge has published up to" in said, said
    assert "3 s" in said, said


def test_ctrl_c_ends_snapshot_and_jvm(damaged: Deployment, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cdc", "reconcile", "-c", str(damaged.config), "--report", str(tmp_path / "report")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with psycopg.connect(damaged.source.dsn, autocommit=True) as connection:

        def held() -> int:
            row = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xmin IS NOT NULL"
                " AND pid <> pg_backend_pid() AND application_name LIKE 'cdc%%'"
                " AND application_name LIKE '%%reconcile%%'"
            ).fetchone()
            assert row is not None
            return int(row[0])

        eventually(lambda: held() or process.poll() is not None, 120)
        assert process.poll() is None
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(60) == INTERRUPTED
        eventually(lambda: not held(), 30, "the snapshot is let go")
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    damaged.stop()
