"""A topic that the cleaner has really been through: what is left of it is still the table, or cannot be judged.

A certificate of it can be verified as long as the cleaner has not been there again, and then says so.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.certificate import Bucket, RunCertificate, VerifyJob, read_chain
from cdc.contract.jobspec.deployment import KafkaSettings, SparkSettings
from cdc.contract.ports import StoredRecord
from cdc.spark.certify.verify import VerifiedTable, verify
from tests.support.certified_rows import buckets_of, rows_of
from tests.support.commands import cdc
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import Database
from tests.support.topic_damage import Damage
from tests.support.waiting import eventually

TABLE = "public.account"
LAG_MS = 15_000
"""More than the margin for clocks, so that differences can be proven; less than a test is willing to wait."""


@pytest.fixture
def cleaned(deploy: Deploy, database: Database) -> Deployment:
    """A bridge beside a table, all of its rows changed and some deleted, until the cleaner has erased the changes."""
    database.execute("CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2))")
    database.execute("INSERT INTO account SELECT n, n FROM generate_series(1, 500) n")
    deployment = deploy(
        topics={
            "partitions": 2,
            "segment_ms": 500,
            "min_compaction_lag_ms": LAG_MS,
            "max_compaction_lag_ms": LAG_MS,
            "min_cleanable_dirty_ratio": 0.01,
        }
    )
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    database.execute("UPDATE account SET balance = 0.25")
    database.execute("UPDATE account SET balance = id * 2")
    database.execute("DELETE FROM account WHERE id > 450")

    def erased() -> bool:
        # Each transaction closes a segment, so that the cleaner may have those before.
        database.execute("UPDATE account SET balance = balance + 1 WHERE id <= 4")
        deployment.wait_published()
        values = [each.value or b"" for each in deployment.records(TABLE)]
        return not any(b'"balance":"0.25"' in value for value in values)

    eventually(erased, 180, "the cleaner erases the first update")
    return deployment


def verified(
    certificate: RunCertificate, settings: SparkSettings, spark: SparkSession, kafka: KafkaSettings
) -> VerifiedTable:
    asked = VerifyJob(spark=settings, kafka=kafka, certificate=certificate)
    (answer,) = verify(asked, contextlib.nullcontext(spark))
    return answer


def see_what_is_altered(
    certificate: RunCertificate, settings: SparkSettings, spark: SparkSession, kafka: KafkaSettings
) -> None:
    """Of a certificate that the topic bears out."""
    (table,) = certificate.tables

    def altered(**options: Any) -> VerifiedTable:
        changed = table.model_copy(update={"fold": table.fold.model_copy(update=options)})
        return verified(certificate.model_copy(update={"tables": (changed,)}), settings, spark, kafka)

    number, rows, digest = table.fold.buckets[7]
    forged = (*table.fold.buckets[:7], Bucket(number, rows, digest[::-1]), *table.fold.buckets[8:])
    found = altered(buckets=forged)
    assert found.answer == "different", found
    assert f"does not hold the rows that were certified in bucket {number}," in found.text
    another, fewer = altered(topic_id="another"), altered(offsets=table.fold.offsets[:1])
    assert (another.answer, fewer.answer) == ("cannot be told", "cannot be told")
    assert "deleted and created anew" in another.text
    assert "had 1 partitions, and has 2 now" in fewer.text
    lost = altered(offsets=((0, 10**9), (0, 10**9)))
    assert (lost.answer, "the cluster has lost them" in lost.text) == ("different", True)


def see_what_cannot_be_told(cleaned: Deployment, database: Database, proofs: Path, old: StoredRecord) -> None:
    """Once the cleaner has erased a row that the first line certifies."""

    def erased() -> bool:
        database.execute("UPDATE account SET balance = balance + 1 WHERE id <= 4")
        cleaned.wait_published()
        return (old.partition, old.offset) not in {(each.partition, each.offset) for each in cleaned.records(TABLE)}

    eventually(erased, 180, "the cleaner erases what was certified")
    done = cdc("reconcile", "-c", cleaned.config, "--verify", proofs, "--line", "1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "2 certificates, each of which names the one before" in done.stdout
    assert f"CANNOT BE TOLD {TABLE}: " in done.stdout
    assert '  {"id":1}\n' in done.stdout


@pytest.mark.pg(16, matrix=False)
@pytest.mark.timeout(900)
def test_what_the_cleaner_left_is_the_table_and_damage_is_found_in_it(
    cleaned: Deployment, database: Database, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    records = cleaned.records(TABLE)
    offsets = {(each.partition, each.offset) for each in records}
    assert len(records) < 3 * 500, "nothing was cleaned"
    proofs = tmp_path / "proofs.jsonl"
    job = job_for(cleaned, tmp_path / "report", spark_settings, replica=None, certificate=str(proofs))
    report = reconciled(job, spark)
    table = table_of(report, TABLE)
    assert report.verdict == "identical", (table.reason, table.counts, table.samples)
    assert table.counts.identical == table.counts.source_rows == 450
    assert table.counts.tombstones + table.counts.live_keys <= len(offsets)

    newest = {each.key or b"": each for each in records}
    first = read_chain(proofs).chosen
    assert first is not None
    (certified,) = first.tables
    assert (certified.verdict, certified.rows, certified.source_rows) == ("identical", 450, 450)
    assert certified.fold.buckets == buckets_of(rows_of({key: each.value for key, each in newest.items()}))

    answer = verified(first, spark_settings, spark, job.kafka)
    assert answer.answer == "verified", answer
    assert answer.text == f"450 rows at {certified.fold.lsn}; the run found 0 differences from the source"
    see_what_is_altered(first, spark_settings, spark, job.kafka)

    damage = Damage(cleaned)
    damage.write(TABLE, b'{"id":100}', None, header=newest[b'{"id":100}'].header)
    damage.done()
    code, said = run_command(cleaned, tmp_path / "damaged", "--no-replica", "--certificate", str(proofs))
    assert code == 1, said
    assert "1 of" in said or "missing" in said, said
    chain = read_chain(proofs)
    assert (chain.lines, chain.fault) == (2, "")
    assert chain.chosen is not None
    assert [(each.verdict, each.rows, each.differences) for each in chain.chosen.tables] == [("different", 449, 1)]

    see_what_cannot_be_told(cleaned, database, proofs, newest[b'{"id":1}'])
    cleaned.stop()
