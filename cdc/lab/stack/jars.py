"""Provides the jars of the broker and of Spark's connectors: named by committed locks, downloaded once per user."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from cdc.lab.stack.artefacts import Artefact, Download, fetch, read_lock
from cdc.lab.stack.cache import Say, cache_dir, make_once, silent

KAFKA_LOCK = Path(__file__).with_name("kafka.lock")
SPARK_LOCK = Path(__file__).with_name("spark.lock")


def kafka_version(lock: Path = KAFKA_LOCK) -> str:
    """Returns the version of the broker in the lock."""
    return next(artefact.version for artefact in read_lock(lock) if artefact.name.startswith("kafka_"))


def kafka_home(lock: Path = KAFKA_LOCK) -> Path:
    """Returns the cache folder for everything made from this lock, with the jars in ``libs``; each lock has its own."""
    return _home("kafka", kafka_version(lock), lock)


def fetch_jars(lock: Path = KAFKA_LOCK, *, say: Say = silent, download: Download | None = None) -> Path:
    """Returns the directory with the broker's jars; the first call downloads and checks them.

    Args:
        lock: the committed list of jars.
        say: called with the progress of a download every few seconds.
        download: how to get one artefact; see ``artefacts.fetch``.

    Raises:
        StackError: an artefact cannot be downloaded, or differs from the locked one.
    """
    what, instead = f"Kafka {kafka_version(lock)}", "set CDC_KAFKA to your own brokers"
    return _libs(kafka_home(lock), read_lock(lock), what, instead, say, download)


def fetch_spark_jars(*, say: Say = silent, download: Download | None = None) -> tuple[Path, ...]:
    """Returns the jars that Spark jobs need besides pyspark: Kafka connector, Avro, Delta tables, JDBC driver.

    Raises:
        StackError: an artefact cannot be downloaded, or differs from the locked one.
    """
    artefacts = read_lock(SPARK_LOCK)
    version = next(artefact.version for artefact in artefacts if artefact.name.startswith("spark-sql-kafka"))
    what, instead = f"Spark's connectors {version}", "name your own jars: --jars"
    libs = _libs(_home("spark", version, SPARK_LOCK), artefacts, what, instead, say, download)
    return tuple(libs / artefact.file_name for artefact in artefacts)


def _home(program: str, version: str, lock: Path) -> Path:
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    return cache_dir() / f"{program}-{version}-{digest}"


def _libs(
    home: Path, artefacts: Sequence[Artefact], what: str, instead: str, say: Say, download: Download | None
) -> Path:
    def make(directory: Path) -> None:
        libs = directory / "libs"
        libs.mkdir()
        fetch(artefacts, libs, what=what, instead=instead, say=say, download=download)

    return make_once(home, make) / "libs"
