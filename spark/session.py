"""One way to a Spark session: local or on a cluster, with the pinned connector, in UTC, and quiet.

A cluster gets jars and the package ``cdc`` from the driver. Its own part: the Python that PYSPARK_PYTHON names, of the
driver's minor version, with what that package imports of others.
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
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import cdc
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.spark.errors import JobError

CONNECTOR_VERSION: Final = "4.2.0"
"""Of spark-sql-kafka-0-10; pyspark must be the same, because the connector calls Spark's internals."""

_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps are read and written as UTC whatever the machine is set to.
    "spark.sql.session.timeZone": "UTC",
    # Hashes do not shrink, but what stands around them does: a quarter fewer bytes than with lz4, in the same time.
    "spark.io.compression.codec": "zstd",
    # Group ids of a job's consumers begin alike, so that one prefixed ACL covers them.
    "spark.sql.streaming.stopTimeout": "60s",
    # Rows of 40 bytes: more partitions than cores only cost task starts, and adaptive execution splits the large.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    # One comparison makes 150 classes, and the next table's are the same: of 100, Spark's default, none would be left.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
_LOCAL: Final[Mapping[str, str]] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_LOCAL_MEMORY: Final = "2g"
_SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_STANDALONE: Final = "spark://"
_ANSWERS_S: Final = 10.0


@contextmanager
def open_session(settings: SparkSettings, app_name: str, *, cores: int | None = None) -> Iterator[SparkSession]:
    """A session that is stopped at the end.

    Args:
        settings: master, jars, further settings.
        app_name: shown by the cluster's pages.
        cores: shuffle partitions; unless given twice the cores of this machine, and on a cluster Spark's default, which
            adaptive execution joins: workers may come after the start, so how many there are then says nothing.

    Raises:
        JobError: pyspark is not the connector's version, or Spark does not start.
    """
    if pyspark.__version__ != CONNECTOR_VERSION:
        raise JobError(
            f"pyspark is {pyspark.__version__}, the Kafka connector {CONNECTOR_VERSION}",
            remedy=f"pip install 'pyspark=={CONNECTOR_VERSION}'",
        )
    refuse_silent_master(settings.master)
    _prepare_environment(settings)
    builder = SparkSession.builder.master(settings.master).appName(app_name)
    defaults = {**_SETTINGS, "spark.jars": ",".join(settings.jars)}
    is_local = settings.master.startswith("local")
    if is_local:
        defaults |= {**_LOCAL, "spark.driver.memory": _LOCAL_MEMORY}
    for name, value in {**defaults, **settings.conf}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        told = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise JobError(
            f"Spark does not start with master {settings.master}: {told}",
            remedy="see the lines above: is the master well, and is JAVA_HOME a Java that this Spark takes?",
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    if cores is None and is_local:
        cores = 2 * session.sparkContext.defaultParallelism
    if cores is not None and "spark.sql.shuffle.partitions" not in settings.conf:
        session.conf.set("spark.sql.shuffle.partitions", str(cores))
    try:
        # Executors that come later fetch what is shipped then: it stays to the end.
        with tempfile.TemporaryDirectory(prefix="cdc-shipped-") as folder:
            if not is_local:
                session.sparkContext.addPyFile(str(zipped_package(Path(folder))))
            yield session
    finally:
        session.stop()


def refuse_silent_master(master: str) -> None:
    """See that a standalone master answers: Spark itself would try for minutes, then fail with an error of its inside.

    Args:
        master: Spark master URL; of any other kind nothing is asked.

    Raises:
        JobError: none of its addresses takes a connection.
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
        f"no Spark master answers at {master}: {why}", remedy="see whether it runs and the address is right: --master"
    )


def zipped_package(folder: Path) -> Path:
    """A zip of this project's package as it is installed here, for Pythons that have only what it imports.

    Args:
        folder: where to put it.
    """
    archive, package = folder / "cdc-package.zip", Path(cdc.__file__).parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for place, _, names in os.walk(package, followlinks=True):  # in a checkout, jobs and migrations are links
            for module in (Path(place, name) for name in sorted(names) if name.endswith(".py")):
                zipped.write(module, Path(package.name, module.relative_to(package)))
    return archive


def _prepare_environment(settings: SparkSettings) -> None:
    """Before the JVM starts: it inherits this, and reads none of it later."""
    # Workers would take whatever python3 is on PATH, which may lack what a job imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if settings.java_home is not None:
        os.environ["JAVA_HOME"] = settings.java_home
    given = os.environ.get(_SUBMIT_OPTIONS, "")
    if settings.java_options not in given:
        # Not as a setting, where it would take the place of a user's.
        os.environ[_SUBMIT_OPTIONS] = f"{settings.java_options} {given}".strip()
