"""Copies in Parquet of a table whose columns change their types: no value is lost, cut, or spelled otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError
from cdc.spark.mirror import manifest as manifests
from tests.integration.spark.mirrors import job_for, run
from tests.support.deployment import Deploy
from tests.support.servers import Database


def files_of(job: MirrorJob, topic: str) -> list[pyarrow.Table]:
    """Everything that the manifest names."""
    folder = Path(job.path) / topic
    manifest = manifests.read(folder, topic)
    parts = [each for each in (manifest.state, *manifest.changes) if each]
    return [pyarrow.parquet.read_table(file) for part in parts for file in sorted((folder / part).glob("*.parquet"))]


def rows_of(job: MirrorJob, topic: str) -> list[dict[str, Any]]:
    rows = [row for table in files_of(job, topic) for row in table.to_pylist()]
    return sorted(
        ({name: value for name, value in row.items() if not name.startswith("cdc_")} for row in rows),
        key=lambda row: row["id"],
    )


def test_rows_that_were_not_published_since_keep_their_values(
    spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    """A fraction was cut off without a word, and a text that is no number stopped the mirror for ever."""
    deployment = deploy(topics={"partitions": 1})
    database.execute("CREATE TABLE thing (id int PRIMARY KEY, wide int, word text, part float8)")
    database.execute("INSERT INTO thing SELECT n, n, 'word ' || n, n + 0.5 FROM generate_series(1, 3) n")
    deployment.start_bridge()
    deployment.wait_backfilled("public.thing")
    job = job_for(deployment, tmp_path / "lake", ["public.thing"], compact_every=100)
    topic = deployment.topic("public.thing")
    run(spark, job)
    database.execute(
        "ALTER TABLE thing ALTER wide TYPE bigint, ALTER word TYPE int USING id, ALTER part TYPE int USING id;"
        "UPDATE thing SET wide = 10000000000 WHERE id = 1"
    )
    deployment.wait_published()
    expected = [
        {"id": 1, "wide": 10_000_000_000, "word": "1", "part": 1.0},
        {"id": 2, "wide": 2, "word": "word 2", "part": 2.5},
        {"id": 3, "wide": 3, "word": "word 3", "part": 3.5},
    ]
    for again in (False, True):
        run(spark, job.model_copy(update={"rebuild": again}))
        assert rows_of(job, topic) == expected, f"{again=}"
        assert len({str(table.schema) for table in files_of(job, topic)}) == 1

    database.execute("ALTER TABLE thing ALTER part TYPE text; UPDATE thing SET part = '1e3' WHERE id = 1")
    deployment.wait_published()
    with pytest.raises(JobError, match=r"column 'part' of .* changed its type") as refused:
        run(spark, job)
    assert "--rebuild" in (refused.value.remedy or "")
    run(spark, job.model_copy(update={"rebuild": True}))
    assert [row["part"] for row in rows_of(job, topic)] == ["1e3", "2.5", "3.5"]
    deployment.stop()
