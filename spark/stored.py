"""Writes Parquet that a job reads again or hands over, and makes sure that all of it is there.

Executors write the files themselves. If the folder is on each machine's own disk, the driver does not see the files of
the others, and Spark reports no error. Lost findings would look like no findings.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as fn

from cdc.spark.errors import JobError


def store(frame: DataFrame, path: str) -> DataFrame:
    """Writes a DataFrame to ``path``, replacing what is there.

    Returns:
        The stored rows. The schema is given, because Spark would run a job to read it from the files.

    Raises:
        JobError: not all rows can be read back.
    """
    told = Observation()
    frame.observe(told, fn.count(fn.lit(1)).alias("rows")).write.mode("overwrite").parquet(path)
    if not str(frame.sparkSession.sparkContext.master).startswith("local"):
        refuse_unless_whole(frame, path, told.get["rows"])
    return frame.sparkSession.read.schema(frame.schema).parquet(path)


def refuse_unless_whole(frame: DataFrame, path: str, rows: int) -> None:
    """Counts the stored rows that the driver finds.

    Args:
        frame: the DataFrame that was written.
        path: where it was written.
        rows: how many rows it had.

    Raises:
        JobError: the driver finds another number of rows.
    """
    found = frame.sparkSession.read.schema(frame.schema).parquet(path).count()
    if found != rows:
        raise JobError(
            f"{path} holds {found:,} of the {rows:,} rows that Spark's workers wrote there",
            remedy="name a folder that driver and workers share, on a network file system or an object store",
        )
