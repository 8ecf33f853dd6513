"""Spark's classes in an archive that Java maps, so that a JVM of a test starts with two thirds of the CPU.

Called as a program, this module is the job whose JVM writes the archive at its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import Final

from filelock import FileLock
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc.lab.stack.cache import cache_dir
from cdc.lab.stack.spark import SUBMIT_OPTIONS, spark_runtime
from tests.support.quick_java import QUICK

_PATIENCE_S: Final = 600


@cache
def classes() -> str:
    """Options with which a JVM finds them; made at the first call, by whichever test process comes first."""
    runtime = spark_runtime()
    with FileLock(cache_dir() / "spark-classes.lock"):
        training = runtime.classes.options(train=True)
        if "-XX:ArchiveClassesAtExit" in training:
            options = {
                "JAVA_HOME": str(runtime.java_home),
                "PYSPARK_PYTHON": sys.executable,
                SUBMIT_OPTIONS: f"{QUICK} {training}",
            }
            command = [sys.executable, "-m", __name__]
            subprocess.run(command, env={**os.environ, **options}, capture_output=True, timeout=_PATIENCE_S, check=True)
    return runtime.classes.options()


def _load_most() -> None:
    """What jobs do, in small; returns when the JVM is gone."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(1000).selectExpr("id", "sha2(cast(id AS string), 256) AS hash")
    both = rows.join(rows.withColumnRenamed("hash", "other"), "id", "full_outer")
    both.mapInArrow(lambda batches: batches, both.schema).groupBy("hash").count().collect()
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_PATIENCE_S)


if __name__ == "__main__":
    _load_most()
