"""The audit trail of a small table, against what the test did to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.base.config import load
from cdc.contract.jobspec.audit import AuditJob
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.ops.jobs.describe import describe_deployment
from cdc.spark.errors import JobError
from cdc.spark.history.main import write_audit
from tests.support.commands import cdc
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database

TABLE = "public.account"


@pytest.fixture
def audited(deploy: Deploy, database: Database) -> Deployment:
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2), note text)")
    database.execute("ALTER TABLE account REPLICA IDENTITY FULL")
    database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    database.execute("INSERT INTO account VALUES (1, 1, 'old'), (2, 2, 'old')")
    deployment = deploy(topics={"history": [TABLE], "partitions": 2})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    database.execute("INSERT INTO account VALUES (3, 3, 'new')")
    database.execute("UPDATE account SET balance = 30 WHERE id = 3")
    database.execute("UPDATE account SET id = 4 WHERE id = 3")
    database.execute("DELETE FROM account WHERE id = 4")
    deployment.wait_published()
    return deployment


def job(deployment: Deployment, folder: Path, table: str = TABLE, **chosen: object) -> AuditJob:
    described = describe_deployment(load(deployment.config, {}), [table])
    return AuditJob(
        spark=SparkSettings(),
        kafka=described.kafka,
        table=described.tables[0],
        folder=str(folder),
        **chosen,  # type: ignore[arg-type]  # keywords, checked when it runs
    )


def test_each_change_is_told_with_what_differs(spark: SparkSession, audited: Deployment, tmp_path: Path) -> None:
    summary = write_audit(spark, job(audited, tmp_path / "all"))
    rows = spark.read.parquet((tmp_path / "all" / "trail").as_uri()).orderBy("key", "partition", "offset").collect()
    first, third = '"balance":"3.00","note":"new"}', '"balance":"30.00","note":"new"}'
    assert [(row["key"], row["op"], row["old"], row["new"], row["changed"]) for row in rows] == [
        ('{"id":1}', "r", None, '{"id":1,"balance":"1.00","note":"old"}', None),
        ('{"id":2}', "r", None, '{"id":2,"balance":"2.00","note":"old"}', None),
        ('{"id":3}', "c", None, '{"id":3,' + first, None),
        ('{"id":3}', "u", '{"id":3,' + first, '{"id":3,' + third, ["balance"]),
        ('{"id":3}', "d", '{"id":3,' + third, None, None),
        ('{"id":4}', "c", '{"id":3,' + third, '{"id":4,' + third, None),
        ('{"id":4}', "d", '{"id":4,' + third, None, None),
    ]
    assert (tmp_path / "all" / "summary.txt").read_text() == summary
    lines = [line.strip() for line in summary.splitlines()]
    assert {"backfilled: 2", "inserts: 2", "updates: 1", "deletes: 2", '{"id":3}: 3'} <= set(lines)

    command = cdc("audit", TABLE, "--to", tmp_path / "command", "-c", audited.config)
    assert (command.returncode, command.stdout) == (0, summary), command.stderr
    assert list((tmp_path / "command" / "trail").glob("*.parquet"))


@pytest.mark.long
def test_keys_and_times_choose(spark: SparkSession, audited: Deployment, tmp_path: Path) -> None:
    write_audit(spark, job(audited, tmp_path / "one", keys=('{"id":3}',)))
    (trail,) = (tmp_path / "one").glob("trail")
    rows = sorted(spark.read.parquet(trail.as_uri()).collect(), key=lambda row: row["offset"])
    assert [row["op"] for row in rows] == ["c", "u", "d"]
    epoch_us = [int(row["commit_time"].timestamp() * 1_000_000) for row in rows]
    write_audit(spark, job(audited, tmp_path / "now", keys=('{"id":3}',), since_us=epoch_us[1], until_us=epoch_us[2]))
    assert [row["op"] for row in spark.read.parquet((tmp_path / "now" / "trail").as_uri()).collect()] == ["u"]


def test_what_cannot_be_told_is_refused(spark: SparkSession, audited: Deployment, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(JobError, match="exists"):
        write_audit(spark, job(audited, tmp_path / "there"))
    with pytest.raises(JobError, match="keeps no history"):
        write_audit(spark, job(audited, tmp_path / "none", table="public.other"))
    assert not (tmp_path / "none").exists()
