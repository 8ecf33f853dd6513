"""Keys that librdkafka's own partitioners placed are attributed to them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.lab.stack import KafkaBroker
from tests.integration.topics.looking import now_ms
from tests.support.written_log import WrittenLog

KEYS = [f"customer-{number}" for number in range(400)]


def write(broker: KafkaBroker, topic: str, partitioner: str, keys: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": partitioner})
    for key in keys:
        producer.produce(topic, b"v", key)
    assert producer.flush(30) == 0


def found(broker: KafkaBroker, topic: str, exit_code: int) -> dict[str, Any]:
    shown = CliRunner().invoke(app, ["topics", "partitioner", topic, "-b", broker.bootstrap, "--json"])
    assert shown.exit_code == exit_code, shown.output
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


@pytest.mark.parametrize(
    ("option", "name"), [("murmur2_random", "murmur2"), ("consistent_random", "crc32"), ("fnv1a_random", "fnv1a")]
)
def test_one_writer(cleaning: KafkaBroker, option: str, name: str) -> None:
    log = WrittenLog(cleaning.bootstrap, partitions=5)
    write(cleaning, log.topic, option, KEYS)

    document = found(cleaning, log.topic, exit_code=0)

    assert (document["partitioner"], document["sampled_keys"], document["split_count"]) == (name, 400, 0)


def test_two_writers_and_the_keys_that_they_tore_apart(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, partitions=5)
    write(cleaning, log.topic, "murmur2_random", KEYS[:250])
    write(cleaning, log.topic, "consistent_random", KEYS[150:])

    document = found(cleaning, log.topic, exit_code=1)

    assert (document["partitioner"], set(document["mixed"])) == (None, {"murmur2", "crc32"})
    assert 50 < document["split_count"] <= 100
    assert all(len(each["partitions"]) == 2 for each in document["split"])


def test_partitions_that_the_writer_chose(cleaning: KafkaBroker) -> None:
    log = WrittenLog(cleaning.bootstrap, partitions=5)
    for number in range(5):
        log.append(KEYS[number::5] * 2, now_ms(), partition=number)

    shown = CliRunner().invoke(app, ["topics", "partitioner", log.topic, "-b", cleaning.bootstrap, "--top", "1"])

    assert shown.exit_code == 0
    assert "no partitioner that is known here" in shown.output
    assert "2 records of customer-0" in shown.output
