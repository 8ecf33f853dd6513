"""Small tables are compared together; whatever is not plainly equal there is compared by itself, as ever."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.certificate import VerifyJob, read_chain
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.spark.certify.verify import verify
from cdc.spark.errors import JobError
from cdc.spark.reconcile.comparison import Comparison
from cdc.spark.report.model import Report
from tests.support.certified_rows import buckets_of, rows_of
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled
from tests.support.servers import Database
from tests.support.topic_damage import Damage

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]

PLAIN = ("first", "second", "third", "With \"quotes\" and 'more'")
ROWS = 50
TOGETHER = "comparing the small ones together"


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """Four plain tables, an empty one and a partitioned one, all mirrored."""
    with database.connect() as conn:
        for name in PLAIN:
            quoted = '"' + name.replace('"', '""') + '"'
            conn.execute(f"CREATE TABLE {quoted} (id int PRIMARY KEY, note text, extra jsonb)".encode())
            conn.execute(
                f"INSERT INTO {quoted} SELECT n, 'note ' || n, 'null' FROM generate_series(1, {ROWS}) n".encode()
            )
        conn.execute("CREATE TABLE nobody (id int PRIMARY KEY)")
        conn.execute("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        conn.execute("CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100)")
        conn.execute("INSERT INTO parts SELECT generate_series(1, 9)")
    deployment = deploy(topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    return deployment


def by_name(report: Report) -> dict[str, tuple[str, int, int | None]]:
    """Verdict, rows of the source and of the replica."""
    return {
        each.table.removeprefix("public."): (
            each.verdict,
            each.counts.source_rows,
            each.replica.rows if each.replica else None,
        )
        for each in report.tables
    }


ALL_EQUAL = {
    **dict.fromkeys(PLAIN, ("identical", ROWS, ROWS)),
    "nobody": ("identical", 0, 0),
    "parts": ("identical", 9, 9),
}


def test_equal_tables_are_done_together_and_the_others_one_by_one(
    shop: Deployment, spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path, database: Database,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    proofs = tmp_path / "proofs.jsonl"
    job = job_for(shop, tmp_path / "equal", spark_settings, certificate=str(proofs))
    report = reconciled(job, spark)
    certificate = read_chain(proofs).chosen
    assert certificate is not None
    assert [(each.table, each.rows) for each in certificate.tables] == [
        (each.table, each.counts.source_rows) for each in report.tables
    ]
    for each in certificate.tables:
        newest = {record.key or b"": record.value for record in shop.records(each.table)}
        # The header of each record says that its null is a document.
        nulls = "2" if each.table.removeprefix("public.") in PLAIN else ""
        rows = [row._replace(json_null=nulls) for row in rows_of(newest)]
        assert each.fold.buckets == buckets_of(rows), each.table
    chosen = [each for each in certificate.tables if each.table in ("public.first", "public.nobody")]
    some = certificate.model_copy(update={"tables": tuple(chosen)})
    asked = VerifyJob(spark=spark_settings, kafka=job.kafka, certificate=some)
    assert {each.answer for each in verify(asked, contextlib.nullcontext(spark))} == {"verified"}
    said = capfd.readouterr().err
    assert by_name(report) == ALL_EQUAL, said
    assert said.count(TOGETHER) == 2, said
    assert [line for line in said.splitlines() if line.endswith(": comparing")] == ["public.parts: comparing"]
    assert {each.snapshot for each in report.tables if each.table != "public.parts"} == {report.tables[0].snapshot}

    (record,) = (each for each in shop.records("public.second") if each.key == b'{"id":7}')
    damage = Damage(shop)
    damage.write("public.second", b'{"id":7}', None, header=record.header)
    damage.write("public.nobody", b'{"id":1}', b'{"id":1}', header=record.header)
    damage.done()
    with psycopg.connect(shop.replica.dsn, autocommit=True) as replica:
        replica.execute("UPDATE public.third SET note = 'touched' WHERE id = 3")
    job = job_for(shop, tmp_path / "damaged", spark_settings, fence_timeout_s=10)
    # Nobody waits for a table that is locked, but its own comparison.
    with database.connect() as conn, conn.transaction():
        conn.execute("LOCK TABLE first IN ACCESS EXCLUSIVE MODE")
        report = reconciled(job, spark)
    said = capfd.readouterr().err
    verdicts = {name: verdict for name, (verdict, *_) in by_name(report).items()}
    assert verdicts == {
        **dict.fromkeys(PLAIN, "identical"), "parts": "identical",
        "first": "not_verified", "second": "different", "third": "different", "nobody": "different",
    }, said  # fmt: skip
    alone = {line.split(": ")[0].removeprefix("public.") for line in said.splitlines() if line.endswith(": comparing")}
    assert alone == {"first", "second", "nobody", "parts"}, said
    assert [each.table for each in report.tables] == sorted(each.table for each in report.tables)
    found = {each.table: each for each in report.tables}
    assert "lock timeout" in found["public.first"].reason
    assert found["public.second"].counts.missing_in_topic == 1
    assert found["public.nobody"].counts.extra_in_topic == 1
    assert found["public.third"].replica is not None
    assert found["public.third"].replica.value_mismatch == 1
    assert found["public.third"].counts.differences == 0
    shop.stop()


def test_a_lock_on_what_the_sink_records_does_not_hold_a_comparison_for_ever(
    shop: Deployment, spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path
) -> None:
    job = job_for(shop, tmp_path / "locked", spark_settings, tables=["public.second"], fence_timeout_s=2)
    with psycopg.connect(shop.replica.dsn) as replica:
        replica.execute("LOCK TABLE cdc.cut IN ACCESS EXCLUSIVE MODE")
        (found,) = reconciled(job, spark).tables
    assert found.verdict == "not_verified"
    assert "another session's lock did not go away" in found.reason


def test_what_breaks_the_look_at_all_of_them_costs_no_verdict(
    shop: Deployment, spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def broken(*_: object) -> None:
        raise JobError("a disk is full", remedy="empty it")

    monkeypatch.setattr(Comparison, "first_looks", broken)
    tables = ["public.first", "public.nobody"]
    report = reconciled(job_for(shop, tmp_path / "broken", spark_settings, tables), spark)
    said = capfd.readouterr().err
    assert said.count("a disk is full: each is compared by itself") == 2, said
    assert by_name(report) == {"first": ALL_EQUAL["first"], "nobody": ALL_EQUAL["nobody"]}
    shop.stop()
