"""Debezium's PostgreSQL connector in a Kafka Connect of its own, for one run.

The configuration files stand beside this module. ``tuned`` adds to ``defaults``. Both run on a JVM that is started for
the run, with the collector that did best; the rate is measured from where the slot becomes active, so without the
JVM's start, which has a column of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Literal

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import conninfo_to_dict

from cdc.stack.artefacts import fetch, read_lock
from cdc.stack.cache import cache_dir, make_once
from cdc.stack.embedded import free_port
from cdc.stack.java import find_java
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.processes import Program, program, wait_until
from tests.benchmarks.topics import committed_reader, partitions
from tests.benchmarks.workload import PUBLICATION

Manner = Literal["defaults", "tuned"]

_HERE = Path(__file__).parent
_JVM = ("-Xms256M", "-Xmx2G", "-XX:+UseParallelGC")
_PARTITIONS = 4
"""As ours: the default of ``topics.partitions``."""
_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"


def version() -> str:
    """Of the connector."""
    return next(each.version for each in read_lock(_HERE / "source.lock") if each.name == "debezium-connector-postgres")


@contextmanager
def connector(
    deployment: Deployment, manner: Manner, directory: Path, *, snapshot: str = "no_data"
) -> Iterator[Program]:
    """Run the connector for the length of the block; its topic is made first, with as many partitions as ours."""
    place = directory / f"{deployment.name}-{manner}"
    place.mkdir()
    _make_topic(deployment)
    names = ("defaults", *(["tuned"] if manner == "tuned" else []))
    values = _values(deployment, place, snapshot)
    worker, connect = place / "worker.properties", place / "connector.properties"
    worker.write_text(_filled("worker", values))
    connect.write_text("\n".join(_filled(name, values) for name in names))
    (place / "log4j2.properties").write_text("rootLogger.level=warn\n")
    argv = [find_java().executable, *_JVM, f"-Dlog4j2.configurationFile={place / 'log4j2.properties'}"]
    with program(f"debezium {manner}", [*argv, "-cp", f"{jars()}/*", _MAIN, worker, connect], place) as started:
        yield started


def jars() -> Path:
    """The directory of the connector's jars, fetched once per user."""
    lock = _HERE / "source.lock"

    def make(directory: Path) -> None:
        libs = directory / "libs"
        libs.mkdir()
        fetch(read_lock(lock), libs, what=f"Debezium {version()}", instead="--without-peers", say=print, download=None)

    return make_once(cache_dir() / f"debezium-{version()}", make) / "libs"


def wait_until_written(deployment: Deployment, running: Program, records: int) -> None:
    """Wait until the topic holds so many records, by its end offsets."""
    consumer = committed_reader(deployment.bootstrap)
    try:
        wait_until(
            lambda: _written(consumer, deployment, running) >= records, f"{records:,} records in {deployment.topic}"
        )
    finally:
        consumer.close()


def _written(consumer: Consumer, deployment: Deployment, running: Program) -> int:
    running.must_run()
    found = partitions(deployment.bootstrap, deployment.topic)
    ends = [consumer.get_watermark_offsets(TopicPartition(each.topic, each.partition)) for each in found]
    return sum(each[1] for each in ends if each is not None)


def _make_topic(deployment: Deployment) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    topic = NewTopic(deployment.topic, _PARTITIONS, 1, config={"cleanup.policy": "compact"})
    for made in admin.create_topics([topic]).values():
        made.result()


def _values(deployment: Deployment, directory: Path, snapshot: str) -> dict[str, object]:
    server = conninfo_to_dict(deployment.source_dsn)
    return {
        "bootstrap": deployment.bootstrap,
        "port": free_port(),
        "directory": directory,
        "name": deployment.name,
        "host": server.get("host", "127.0.0.1"),
        "dbport": server.get("port", 5432),
        "user": server.get("user", ""),
        "password": server.get("password", ""),
        "dbname": server.get("dbname", ""),
        "slot": deployment.slot,
        "publication": PUBLICATION,
        "snapshot": snapshot,
    }


def _filled(name: str, values: dict[str, object]) -> str:
    return Template((_HERE / f"{name}.properties").read_text()).substitute(values)
