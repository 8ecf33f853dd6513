"""Debezium's PostgreSQL connector in a Kafka Connect of its own, for one run.

The configuration files stand beside this module. ``tuned`` adds to ``defaults``. Both run on a JVM that is started for
the run; the rate is measured from where the slot becomes active, so without the JVM's start, which has a column of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import conninfo_to_dict

from tests.benchmarks.debezium.connect import Manner, connect
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.processes import Program, wait_until
from tests.benchmarks.topics import committed_reader, partitions
from tests.benchmarks.workload import PUBLICATION
from tests.support.locked_jars import locked_jars

FILES: Final[Mapping[Manner, Sequence[str]]] = {"defaults": ["defaults"], "tuned": ["defaults", "tuned"]}
Form = Literal["rows", "rows with schemas", "change events", "rows in Avro"]
"""What the connector writes."""
_FORMS: Final[Mapping[Form, Sequence[str]]] = {
    "rows": [],
    "rows with schemas": ["with_schemas"],
    "change events": ["change_events"],
    "rows in Avro": ["in_avro"],
}
AVRO_CONVERTER: Final = Path(__file__).parents[2] / "readers" / "connect" / "avro-converter.lock"
_PARTITIONS = 4
"""As ours: the default of ``topics.partitions``."""


@contextmanager
def connector(
    deployment: Deployment,
    manner: Manner,
    directory: Path,
    *,
    snapshot: str = "no_data",
    form: Form = "rows",
) -> Iterator[Program]:
    """Run the connector for the length of the block; its topic is made first, with as many partitions as ours.

    Only change events are Debezium's own in any manner: rows need ``tuned``.
    """
    _make_topic(deployment)
    files = (*FILES[manner], *_FORMS[form])
    values, place = _values(deployment, snapshot), directory / f"{deployment.name}-{manner}"
    also = [f"{locked_jars(AVRO_CONVERTER)}/*"] if form == "rows in Avro" else []
    with connect(f"debezium {manner}", "debezium-connector-postgres", files, values, place, also) as started:
        yield started


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
    return sum(high for _, high in ends)


def _make_topic(deployment: Deployment) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    topic = NewTopic(deployment.topic, _PARTITIONS, 1, config={"cleanup.policy": "compact"})
    for made in admin.create_topics([topic]).values():
        made.result()


def _values(deployment: Deployment, snapshot: str) -> dict[str, object]:
    server = conninfo_to_dict(deployment.source_dsn)
    return {
        "bootstrap": deployment.bootstrap,
        "name": deployment.name,
        "host": server.get("host", "127.0.0.1"),
        "dbport": server.get("port", 5432),
        "user": server.get("user", ""),
        "password": server.get("password", ""),
        "dbname": server.get("dbname", ""),
        "slot": deployment.slot,
        "publication": PUBLICATION,
        "snapshot": snapshot,
        "registry": (deployment.registry or "").partition("/apis/")[0],
    }
