"""What a session on this machine makes cheaper."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are forked by PySpark's own daemon")
def test_workers_share_what_their_daemon_loaded_and_it_forks_without_threads(spark: SparkSession) -> None:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            threads = len(list(Path(f"/proc/{os.getppid()}/task").iterdir()))
            yield pa.record_batch({"shared": [gc.get_freeze_count()], "threads": [threads]})

    found = spark.range(1).mapInArrow(seen, "shared long, threads long").collect()
    assert [each["threads"] for each in found] == [1]
    assert found[0]["shared"] > 50_000  # objects, of which a worker of PySpark's own daemon has none
