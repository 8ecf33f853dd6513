"""Opens a Spark session, on this machine or on a cluster, with the pinned connector, in UTC, and without noise.

The driver ships the jars and the package ``cdc`` to a cluster. The workers must bring the rest: the Python that
PYSPARK_PYTHON names, of the driver's minor version, with the packages that ``cdc`` imports.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from py4j.java_gateway import java_import
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import cdc
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.spark.errors import JobError

CONNECTOR_VERSION: Final = "4.2.0"
"""The version of spark-sql-kafka-0-10. pyspark must have the same, because the connector calls Spark's internals."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps are UTC whatever time zone the machine is set to.
    "spark.sql.session.timeZone": "UTC",
    # Hashes do not compress, but the bytes around them do: zstd needs a quarter fewer than lz4, in the same time.
    "spark.io.compression.codec": "zstd",
    # Without a limit, stopping a streaming query would wait for ever for a batch that hangs.
    "spark.sql.streaming.stopTimeout": "60s",
    # Rows have 40 bytes: many partitions would only cost task starts, and adaptive execution splits large ones.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # A comparison compiles 150 classes, and the next table needs the same. Spark's default of 100 would evict them all.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
_AVRO_LIMITS: Final[Mapping[str, int]] = {
    "org.apache.avro.limits.string.maxLength": 128 * 2**20,
    "org.apache.avro.limits.bytes.maxLength": 128 * 2**20,
    "org.apache.avro.limits.collectionItems.maxLength": 32 * 2**20,
}
"""Avro takes as much memory as a value says that it needs. Without limits a damaged length would end the JVM. No record
of Kafka holds as much."""
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
_LOCAL: Final[Mapping[str, str]] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_DAEMON: Final = "spark.python.daemon.module"
"""What starts Python's workers. On a cluster it is PySpark's own: only workers find the package ``cdc`` that is shipped
there, and this daemon would not start."""
_LOCAL_MEMORY: Final = "2g"
_SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_STANDALONE: Final = "spark://"
_ANSWERS_S: Final = 10.0


@contextmanager
def open_session(settings: SparkSettings, app_name: str, *, cores: int | None = None) -> Iterator[SparkSession]:
    """Yields a session, and stops it at the end of the block.

    Args:
        settings: master, jars, further settings.
        app_name: the name that the cluster's pages show.
        cores: the number of shuffle partitions. By default twice the cores of this machine. On a cluster it is Spark's
            default, which adaptive execution reduces: workers may join later, so counting them now says nothing.

    Raises:
        JobError: pyspark and the connector have different versions, or Spark does not start.
    """
    if pyspark.__version__ != CONNECTOR_VERSION:
        raise JobError(
            f"pyspark is {pyspark.__version__}, but the Kafka connector needs {CONNECTOR_VERSION}",
            remedy=f"pip install 'pyspark=={CONNECTOR_VERSION}'",
        )
    refuse_silent_master(settings.master)
    _prepare_environment(settings)
    builder = SparkSession.builder.master(settings.master).appName(app_name)
    defaults = {**_SETTINGS, "spark.jars": ",".join(settings.jars)}
    is_local = settings.master.startswith("local")
    if is_local:
        defaults |= {**_LOCAL, "spark.driver.memory": _LOCAL_MEMORY}
        if sys.platform == "linux":  # elsewhere a process that has loaded so much may not be able to fork
            defaults[_DAEMON] = "cdc.spark.preloaded_daemon"
    limits = " ".join(f"-D{name}={value}" for name, value in _AVRO_LIMITS.items())
    given = {**defaults, **settings.conf}
    given[_EXECUTOR_OPTIONS] = f"{given.get(_EXECUTOR_OPTIONS, '')} {limits}".strip()
    for name, value in given.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        told = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise JobError(
            f"Spark does not start with master {settings.master}: {told}",
            remedy="see the lines above: does the master run, and is JAVA_HOME a Java version that Spark supports?",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    # PySpark imports its package. For each expression, Java would look for this class in other packages' jars first.
    java_import(session.sparkContext._jvm, "org.apache.spark.api.python.PythonUtils")
    for name, limit in _AVRO_LIMITS.items():
        session.sparkContext._jvm.java.lang.System.setProperty(name, str(limit))  # type: ignore[union-attr]
    if cores is None and is_local:
        cores = 2 * session.sparkContext.defaultParallelism
    if cores is not None and "spark.sql.shuffle.partitions" not in settings.conf:
        session.conf.set("spark.sql.shuffle.partitions", str(cores))
    try:
        # The folder must stay until the end: an executor that joins later fetches the package then.
        with tempfile.TemporaryDirectory(prefix="cdc-shipped-") as folder:
            if not is_local:
                session.sparkContext.addPyFile(str(zipped_package(Path(folder))))
            yield session
    finally:
        session.stop()


def refuse_silent_master(master: str) -> None:
    """Checks that a standalone master answers. Spark itself would try for minutes and then fail with an internal error.

    Args:
        master: Spark's master URL; other kinds than ``spark://`` are not checked.

    Raises:
        JobError: none of its addresses accepts a connection.
    """
    if not master.startswith(_STANDALONE):
        return
    why = ""
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_S).close()
            return
        except (OSError, ValueError) as error:
            why = str(error)
    raise JobError(
        f"no Spark master answers at {master}: {why}", remedy="check that it runs and that --master has its address"
    )


def zipped_package(folder: Path) -> Path:
    """Makes a zip file of the package ``cdc`` as it is installed here, for workers that have only its dependencies.

    Args:
        folder: where to put the file.
    """
    archive, package = folder / "cdc-package.zip", Path(cdc.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for place, _, names in os.walk(package, followlinks=True):  # cdc/spark and cdc/sink/migrations are links
            for module in (Path(place, name) for name in sorted(names) if name.endswith(".py")):
                zipped.write(module, Path(package.name, module.relative_to(package)))
    return archive


def _prepare_environment(settings: SparkSettings) -> None:
    """Sets environment variables. This must happen before the JVM starts, because it reads them only then."""
    # By default, workers take the first python3 on PATH, which may lack what a job imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if settings.java_home is not None:
        os.environ["JAVA_HOME"] = settings.java_home
    given = os.environ.get(_SUBMIT_OPTIONS, "")
    if settings.java_options not in given:
        # As a Spark setting it would replace the user's own Java options.
        os.environ[_SUBMIT_OPTIONS] = f"{settings.java_options} {given}".strip()
