"""One way to a Spark session: local or on a cluster, with the pinned connector, in UTC, and quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from spark.errors import JobError
from spark.job import SparkSettings

CONNECTOR_VERSION: Final = "4.2.0"
"""Of spark-sql-kafka-0-10; pyspark must be the same, because the connector calls Spark's internals."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps are read and written as UTC whatever the machine is set to.
    "spark.sql.session.timeZone": "UTC",
    # Group ids of a job's consumers begin alike, so that one prefixed ACL covers them.
    "spark.sql.streaming.stopTimeout": "60s",
    # Rows of 40 bytes: more partitions than cores only cost task starts, and adaptive execution splits the large.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
_LOCAL: Final[Mapping[str, str]] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_LOCAL_MEMORY: Final = "2g"


@contextmanager
def open_session(settings: SparkSettings, app_name: str, *, cores: int | None = None) -> Iterator[SparkSession]:
    """A session that is stopped at the end.

    Args:
        settings: master, jars, further settings.
        app_name: shown by the cluster's pages.
        cores: shuffle partitions; twice the cores that Spark has unless given.

    Raises:
        JobError: pyspark is not the connector's version.
    """
    if pyspark.__version__ != CONNECTOR_VERSION:
        raise JobError(
            f"pyspark is {pyspark.__version__}, the Kafka connector {CONNECTOR_VERSION}",
            remedy=f"pip install 'pyspark=={CONNECTOR_VERSION}'",
        )
    _prepare_environment(settings)
    builder = SparkSession.builder.master(settings.master).appName(app_name)
    defaults = {**_SETTINGS, "spark.jars": ",".join(settings.jars)}
    if settings.master.startswith("local"):
        defaults |= {**_LOCAL, "spark.driver.memory": _LOCAL_MEMORY}
    for name, value in {**defaults, **settings.conf}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if "spark.sql.shuffle.partitions" not in settings.conf:
        session.conf.set("spark.sql.shuffle.partitions", str(cores or 2 * session.sparkContext.defaultParallelism))
    try:
        yield session
    finally:
        session.stop()


def _prepare_environment(settings: SparkSettings) -> None:
    """Before the JVM starts: it inherits this, and reads none of it later."""
    # Workers would take whatever python3 is on PATH, which may lack what a job imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if settings.java_home is not None:
        os.environ["JAVA_HOME"] = settings.java_home
