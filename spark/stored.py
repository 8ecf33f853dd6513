"""Parquet that a job writes and goes on with, or hands over: all of it is there, or that is said.

Executors write files themselves. In a folder that is on a disk of each machine, those of other machines are lost
without a word from Spark, and what was lost could not be told from what was never found.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as fn

from cdc.spark.errors import JobError


def store(frame: DataFrame, path: str) -> DataFrame:
    """Write it over what is there.

    Returns:
        What lies there now; of the schema that is known Spark need not read it from the files, which is a job.

    Raises:
        JobError: not all of it can be read back.
    """
    told = Observation()
    frame.observe(told, fn.count(fn.lit(1)).alias("rows")).write.mode("overwrite").parquet(path)
    if not str(frame.sparkSession.sparkContext.master).startswith("local"):
        refuse_unless_whole(frame, path, told.get["rows"])
    return frame.sparkSession.read.schema(frame.schema).parquet(path)


def refuse_unless_whole(frame: DataFrame, path: str, rows: int) -> None:
    """Count what the driver finds there.

    Args:
        frame: what was written.
        path: where.
        rows: how many there were.

    Raises:
        JobError: there are not as many.
    """
    found = frame.sparkSession.read.schema(frame.schema).parquet(path).count()
    if found != rows:
        raise JobError(
            f"{path} holds {found:,} of the {rows:,} rows that Spark's workers wrote there",
            remedy="name a folder that driver and workers share: on a network file system, or an object store",
        )
