"""Debezium's JDBC sink connector in a Kafka Connect of its own, for one run, and the topics it can read.

Its records are not the bridge's: it makes SQL of Kafka Connect's schemas, so Debezium's source publishes the same rows
for it, each message with its schema, as the documentation has it. The tuned sink reads a copy of that topic without the
schemas, and is told them once (``schema.content``); that is what suits it best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import conninfo_to_dict

from cdc.lab.stack.embedded import HOST
from tests.benchmarks.debezium import source
from tests.benchmarks.debezium.connect import Manner, connect
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.processes import Program
from tests.benchmarks.topics import committed_reader, partitions, read_to_end

_FILES: Final[Mapping[Manner, Sequence[str]]] = {
    "defaults": ["sink_defaults"],
    "tuned": ["sink_defaults", "sink_tuned"],
}
_BARE: Final = ".bare"
_PRODUCER_OPTIONS: Final[Mapping[str, str | int]] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "queue.buffering.max.messages": 1_000_000,
}


class Target(NamedTuple):
    """The database that the sink writes, with a table ``orders`` already.

    Attributes:
        url: as JDBC has it.
        user: of it.
        password: of the user.
        fast_url: with the options of the driver that did best.
    """

    url: str
    user: str
    password: str
    fast_url: str


def postgres(dsn: str) -> Target:
    """A database of PostgreSQL."""
    server = conninfo_to_dict(dsn)
    url = f"jdbc:postgresql://{server.get('host', HOST)}:{server.get('port', 5432)}/{server.get('dbname', '')}"
    user, password = str(server.get("user", "")), str(server.get("password", ""))
    return Target(url, user, password, f"{url}?reWriteBatchedInserts=true")


def mariadb(port: int, database: str) -> Target:
    """A database of the benchmarks' own MariaDB. The driver's other way, bulk statements, takes more time of both."""
    url = f"jdbc:mariadb://{HOST}:{port}/{database}"
    return Target(url, "root", "", f"{url}?rewriteBatchedStatements=true")


class Published(NamedTuple):
    """Rows as the JDBC sink reads them: in ``topic`` with their schemas, and without them in ``topic`` + ``.bare``.

    Attributes:
        key_schema: as JSON.
        value_schema: as JSON.
        last_keys: ids of each partition's last records: when all are in the replica, nearly everything is.
    """

    bootstrap: str
    topic: str
    key_schema: str
    value_schema: str
    last_keys: tuple[int, ...]


def publish(
    deployment: Deployment, directory: Path, rows: int, *, flattened: Collection[str] = frozenset()
) -> Published:
    """Have Debezium's source publish a table of ``rows`` rows, and copy the topic without the schemas.

    Args:
        deployment: whose table and topic.
        directory: for files.
        rows: how many the table has.
        flattened: columns of arrays of words that are text in the copy, as PostgreSQL prints it.
    """
    with source.connector(deployment, "tuned", directory, snapshot="initial_only", form="rows with schemas") as running:
        source.wait_until_written(deployment, running, rows)
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    count = len(partitions(deployment.bootstrap, deployment.topic))
    for made in admin.create_topics([NewTopic(deployment.topic + _BARE, count, 1)]).values():
        made.result()
    last: dict[int, int] = {}
    key: dict[str, Any] = {}
    value: dict[str, Any] = {}
    producer = Producer({"bootstrap.servers": deployment.bootstrap, **_PRODUCER_OPTIONS})
    with closing(committed_reader(deployment.bootstrap, end_events=True)) as consumer:
        for message in read_to_end(consumer, partitions(deployment.bootstrap, deployment.topic)):
            key, value = _parsed(message)
            _flatten(value, flattened)
            partition = message.partition()
            assert partition is not None, "it was read"
            producer.produce(
                deployment.topic + _BARE,
                orjson.dumps(value["payload"]),
                orjson.dumps(key["payload"]),
                partition,
            )
            producer.poll(0)
            last[partition] = key["payload"]["id"]
    producer.flush()
    key_schema, value_schema = (orjson.dumps(each["schema"]).decode() for each in (key, value))
    return Published(deployment.bootstrap, deployment.topic, key_schema, value_schema, tuple(last.values()))


@contextmanager
def connector(published: Published, target: Target, name: str, manner: Manner, directory: Path) -> Iterator[Program]:
    """Run the connector for the length of the block."""
    values = {
        "bootstrap": published.bootstrap,
        "name": name,
        "topic": published.topic + (_BARE if manner == "tuned" else ""),
        **target._asdict(),
        "key_schema": published.key_schema,
        "value_schema": published.value_schema,
    }
    with connect(f"jdbc {manner}", "debezium-connector-jdbc", _FILES[manner], values, directory / name) as started:
        yield started


def _flatten(value: dict[str, Any], columns: Collection[str]) -> None:
    for field in value["schema"]["fields"]:
        if (column := field["field"]) in columns:
            field["type"] = "string"
            del field["items"]
            if (words := value["payload"][column]) is not None:
                value["payload"][column] = f"{{{','.join(words)}}}"


def _parsed(message: Message) -> tuple[dict[str, Any], dict[str, Any]]:
    key, value = message.key(), message.value()
    assert key is not None
    assert value is not None, "a snapshot deletes nothing"
    return orjson.loads(key), orjson.loads(value)
