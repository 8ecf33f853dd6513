"""Runs that remember: the next one reads what is new, is as exact as one that reads all, and knows when it must."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.spark.report.model import TableReport
from tests.support.deployment import Deploy, Deployment
from tests.support.order_writer import TABLE, Writer, create
from tests.support.reconciling import job_for, reconciled, table_of
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.topic_damage import Damage

LAG_MS = 900_000
RUNS = times(1, soak=10)
"""Beside writers, each of which reads what is new."""
TURNED_BACK: tuple[Mapping[str, object], ...] = (
    {"topic_id": "another"}, {"source": "another"}, {"ends": [10**9] * 3}, {"xmin": 2**60},
)[:times(1, soak=4)]  # fmt: skip
"""What of a kept state does not fit."""


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.pg(16, matrix=False)
def test_the_next_run_reads_what_is_new(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    create(database)
    deployment = deploy(topics={"partitions": 3, "min_compaction_lag_ms": LAG_MS, "max_compaction_lag_ms": 2 * LAG_MS})
    deployment.start_bridge()
    deployment.wait_backfilled()
    state = tmp_path / "state"

    def run(name: str, kept: Path | None = state) -> TableReport:
        state_folder = None if kept is None else str(kept)
        job = job_for(
            deployment, tmp_path / name, spark_settings, replica=None, fence_timeout_s=120, state=state_folder
        )
        return table_of(reconciled(job, spark), TABLE)

    writers = [Writer(database, number) for number in range(2)]
    for writer in writers:
        writer.start()
    last = run("first")
    assert [each.start for each in last.offsets] == [0, 0, 0]
    for number in range(RUNS):
        table = run(f"next-{number}")
        assert table.verdict == "identical", (table.reason, table.counts, table.samples)
        assert table.mode == "incremental"
        assert [each.start for each in table.offsets] == [each.end for each in last.offsets]
        assert sum(each.records for each in table.offsets) > 0
        last = table
    for writer in writers:
        writer.finish()
    deployment.wait_published()
    assert run("at-rest").counts.tombstones > 0
    table = run("at-rest-again")
    assert table.counts.identical == table.counts.source_rows == table.counts.live_keys
    (hashes,) = (state / deployment.topic(TABLE)).glob("hashes-*")
    assert spark.read.parquet(str(hashes)).count() == table.counts.live_keys, "deleted keys pile up"

    damage_two_keys(deployment)
    found = run("damaged")
    whole = run("whole", None)
    assert found.verdict == whole.verdict == "different"
    assert found.counts.value_mismatch == whole.counts.value_mismatch == 1
    assert found.counts.extra_in_topic == whole.counts.extra_in_topic == 1
    assert found.counts.identical == whole.counts.identical == found.counts.source_rows - 1
    assert {each.key for each in found.samples} == {each.key for each in whole.samples}
    assert sum(each.records for each in found.offsets) < sum(each.records for each in whole.offsets)

    manifest = state / deployment.topic(TABLE) / "manifest.json"
    known = json.loads(manifest.read_text(encoding="utf-8"))
    for turned_back in TURNED_BACK:
        manifest.write_text(json.dumps(known | turned_back), encoding="utf-8")
        again = run(f"again-{next(iter(turned_back))}")
        assert [each.start for each in again.offsets] == [each.start for each in whole.offsets], turned_back
        assert (again.mode, again.counts.value_mismatch) == ("full", 1)
    assert len(list(manifest.parent.glob("hashes-*"))) == 1
    deployment.stop()


def damage_two_keys(deployment: Deployment) -> None:
    """A row that has long stood still gets another name, and a row appears that nobody wrote."""
    damage = Damage(deployment)
    newest = {each.key: each for each in deployment.records(TABLE)}
    still = min((each for each in newest.values() if each.value), key=lambda each: each.offset)
    assert still.value is not None
    damage.write(TABLE, still.key or b"", still.value.replace(b"customer", b"Customer"), header=still.header)
    damage.write(TABLE, b'{"id":-1}', still.value, header=still.header)
    damage.done()
