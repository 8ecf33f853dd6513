"""A source that never rests: no false alarm in many runs; every kind of damage is found, explained and healed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.certificate import VerifyJob, read_chain
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.ports import StoredRecord
from cdc.spark.certify.verify import verify
from cdc.spark.report.document import from_json
from cdc.spark.report.model import Report, Sample
from tests.support.deployment import Deploy, Deployment
from tests.support.order_writer import ROWS, TABLE, Writer, create
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.topic_damage import Damage, assert_topic_is_table

RUNS = times(1, soak=40)
LAG_MS = 900_000
"""Longer than the runs take on a slow machine: within it nothing that a snapshot needs is cleaned away."""


@pytest.fixture
def running(database: Database, deploy: Deploy) -> Deployment:
    """Bridge and sink, the table's backfill done."""
    create(database)
    deployment = deploy(topics={"partitions": 3, "min_compaction_lag_ms": LAG_MS, "max_compaction_lag_ms": 2 * LAG_MS})
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    return deployment


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.pg(16, matrix=False)
def test_runs_under_load_without_a_false_difference(
    running: Deployment, database: Database, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings,
    record_property: Callable[[str, object], None],
) -> None:  # fmt: skip
    writers = [Writer(database, number) for number in range(2)]
    for writer in writers:
        writer.start()
    counts = []
    snapshots = set()
    proofs = tmp_path / "proofs.jsonl"
    for number in range(RUNS):
        before = sum(writer.changes for writer in writers)
        job = job_for(running, tmp_path / f"run-{number}", spark_settings, fence_timeout_s=120, certificate=str(proofs))
        report = reconciled(job, spark)
        table = table_of(report, TABLE)
        assert report.verdict == "identical", (number, table.reason, table.counts, table.replica, table.samples)
        assert table.counts.identical == table.counts.source_rows >= ROWS
        assert table.replica is not None
        assert table.replica.identical == table.replica.rows > 0
        counts.append(sum(writer.changes for writer in writers) - before)
        snapshots.add(table.snapshot)
    # The writers still go on, and have changed rows of then.
    first = read_chain(proofs, 1).chosen
    assert first is not None
    assert read_chain(proofs).lines == RUNS
    asked = VerifyJob(spark=spark_settings, kafka=job.kafka, certificate=first)
    (answer,) = verify(asked, contextlib.nullcontext(spark))
    assert answer.answer == "verified", answer
    for writer in writers:
        writer.finish()
    assert len(snapshots) == RUNS
    assert min(counts) > 0
    record_property("changes during each run", counts)
    running.stop()


class TestDamage:
    """What a run says of damage that is known."""

    @pytest.mark.timeout(1800)
    @pytest.mark.pg(16, matrix=False)
    def test_found_explained_and_healed(self, running: Deployment, database: Database, tmp_path: Path) -> None:
        with database.connect() as connection:
            connection.execute("UPDATE orders SET note = 'second' WHERE id < 100")
            connection.execute("DELETE FROM orders WHERE id BETWEEN 90 AND 94")
        running.wait_mirrored()
        self.damage_topic(running)
        running.wait_mirrored()
        with database.connect() as connection:
            connection.execute("INSERT INTO orders VALUES (900001, 'last', 1.50, now(), 'so that the sink cuts')")
        running.wait_mirrored()
        self.damage_replica(running)
        proofs = tmp_path / "proofs.jsonl"
        code, said = run_command(running, tmp_path / "report", "--repair", "--yes", "--certificate", str(proofs))
        certificates = read_chain(proofs)
        assert certificates.chosen is not None
        (certified,) = certificates.chosen.tables
        # Before the repair; after it, only some keys are compared.
        assert (certificates.lines, certified.verdict, certified.differences) == (1, "different", 7)
        assert certified.replica_differences == 4
        found = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
        assert found.exit_code == 1, said
        self.assert_found(found)
        healed = from_json((tmp_path / "report" / "after-repair" / "report.json").read_text(encoding="utf-8"))
        assert (code, healed.verdict) == (0, "identical"), said
        assert healed.tables[0].repair is not None
        assert healed.tables[0].repair.still_different == 0
        assert_topic_is_table(running, TABLE)
        running.wait_table_equal(TABLE)
        running.stop()

    def damage_topic(self, running: Deployment) -> None:
        """One key of each kind."""
        records: dict[bytes, list[StoredRecord]] = {}
        for each in running.records(TABLE):
            records.setdefault(each.key or b"", []).append(each)
        damage = Damage(running)

        def put(number: int, value: bytes | None, of: int = -1, key: bytes = b"") -> None:
            own = records.get(b'{"id":%d}' % number) or records[b'{"id":50}']
            damage.write(TABLE, key or b'{"id":%d}' % number, value, header=own[of].header)

        def latest(number: int) -> bytes:
            return records[b'{"id":%d}' % number][-1].value or b""

        put(10, None)  # a row deleted behind the bridge
        put(800_000, latest(50).replace(b'"id":50,', b'"id":800000,'))  # nothing ever deletes it
        put(90, records[b'{"id":90}'][-2].value, of=-2)  # the version before the tombstone, behind it
        put(11, latest(11).replace(b"customer 11", b"customer 1l"))
        put(12, latest(12).replace(b'"12.50"', b'"12.5"'))
        put(13, records[b'{"id":13}'][0].value, of=0)  # stale
        put(14, latest(14), key=b'{"id": 14}')  # the same key in other bytes
        damage.done()

    def damage_replica(self, running: Deployment) -> None:
        with psycopg.connect(running.replica.dsn, autocommit=True) as connection:
            connection.execute("UPDATE public.orders SET name = 'touched' WHERE id = 20")
            connection.execute("DELETE FROM public.orders WHERE id = 21")
            connection.execute("INSERT INTO public.orders VALUES (700000, 'made up', 0, now(), NULL)")

    def assert_found(self, report: Report) -> None:
        table = table_of(report, TABLE)
        assert table.counts.missing_in_topic == 1, table.samples
        assert table.counts.extra_in_topic == 3, table.samples
        assert table.counts.value_mismatch == 3, table.samples
        assert table.counts.in_flight == 0
        by_key = {(each.key, each.side): each for each in table.samples}

        def one(key: str, difference: str, cause: str, side: str = "topic", *differing: str) -> Sample:
            sample = by_key[key, side]  # type: ignore[index]  # None would fail the test
            assert sample.difference == difference, sample
            assert cause in sample.cause, sample
            assert set(differing) <= set(sample.differing), sample
            return sample

        assert one('{"id":10}', "missing_in_topic", "missing record").source is not None
        one('{"id":800000}', "extra_in_topic", "missed tombstone")
        one('{"id":90}', "extra_in_topic", "stale version")
        one('{"id":11}', "value_mismatch", "", "topic", "name")
        one('{"id":12}', "value_mismatch", "scale", "topic", "amount")
        one('{"id":13}', "value_mismatch", "stale version", "topic", "note")
        one('{"id": 14}', "extra_in_topic", "alias key")
        one('{"id":20}', "value_mismatch", "replica changed", "replica", "name")
        one('{"id":21}', "missing_in_replica", "replica changed", "replica")
        one('{"id":700000}', "extra_in_replica", "replica changed", "replica")
        # A row of a replica has one key, so it cannot hold the alias beside it.
        one('{"id": 14}', "missing_in_replica", "alias key", "replica")
        assert table.replica is not None
        assert table.replica.differences == 4
