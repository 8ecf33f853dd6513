"""Files that other machines kept to themselves are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.spark.errors import JobError
from cdc.spark.stored import refuse_unless_whole, store


def test_lost_files_are_noticed(spark: SparkSession, tmp_path: Path) -> None:
    frame, path = spark.range(0, 10, 1, 2), tmp_path / "rows"
    store(frame, str(path))
    refuse_unless_whole(frame, str(path), 10)
    next(path.glob("part-00001*")).unlink()
    with pytest.raises(JobError, match=r"holds 5 of the 10 rows that Spark's workers wrote there; name a folder"):
        refuse_unless_whole(frame, str(path), 10)


def test_nothing_is_whole_too(spark: SparkSession, tmp_path: Path) -> None:
    frame, path = spark.range(0), tmp_path / "rows"
    store(frame, str(path))
    refuse_unless_whole(frame, str(path), 0)
