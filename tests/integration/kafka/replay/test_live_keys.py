"""Live and stale keys of topics on a real broker: whatever the passes, the ends and what is written meanwhile."""

from __future__ import annotations

from contextlib import closing

import pytest

from cdc.base.errors import TopicRefused
from cdc.contract.ports import Partition
from cdc.contract.record import TableSchema
from cdc.kafka.replay import live_keys as module
from cdc.kafka.replay.live_keys import live_keys, stale_keys
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.stack import Kafka
from tests.support.topic_writer import TopicWriter


@pytest.fixture
def topics(kafka: Kafka) -> TopicWriter:
    return TopicWriter(kafka.bootstrap)


def key(i: int) -> bytes:
    return b'{"id":%d}' % i


def ends(topics: TopicWriter, table: TableSchema) -> dict[Partition, int]:
    with closing(TopicReader(topics.options)) as reader:
        return reader.high_watermarks(reader.partitions(table.topic))


def stale(topics: TopicWriter, below: dict[Partition, int], end: dict[Partition, int]) -> set[bytes]:
    found = [
        each for partition in end for each in stale_keys(topics.admin, partition, below[partition], end[partition])
    ]
    assert len(found) == len(set(found))
    return set(found)


@pytest.fixture(params=["one pass", "many passes"])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many passes":
        monkeypatch.setattr(module, "MAX_KEY_BYTES", 1000)


@pytest.mark.usefixtures("passes")
def test_live_keys(topics: TopicWriter) -> None:
    table = topics.table("t", id="int4", v="text")
    topics.transaction(10, *((table, {"id": i, "v": "old"}) for i in range(200)))
    with topics.kafka_transaction():
        for i in range(0, 200, 2):
            topics.delete(table, {"id": i}, 20)
        topics.upsert(table, {"id": 1, "v": "new"}, 20)
        topics.write(table.topic, key(3), b"null", topics.header(table, 20))
    with topics.kafka_transaction(commit=False):
        topics.delete(table, {"id": 5}, 30)
    found = list(live_keys(topics.admin, table.topic))
    assert sorted(found) == sorted(key(i) for i in range(1, 200, 2))


@pytest.mark.usefixtures("passes")
def test_tombstones_may_be_written_while_keys_come(topics: TopicWriter) -> None:
    """As a TRUNCATE does: in Kafka transactions that end, or are still open, when the next pass reads."""
    table = topics.table("t", id="int4")
    topics.transaction(10, *((table, {"id": i}) for i in range(300)))
    polls = 0

    def count() -> None:
        nonlocal polls
        polls += 1

    found = []
    for number, each in enumerate(live_keys(topics.admin, table.topic, before_poll=count)):
        if number % 70 == 0:
            topics.producer.begin_transaction()
        topics.write(table.topic, each, None, topics.header(table, 20))
        if number % 70 == 69:
            topics.producer.commit_transaction()
        else:
            topics.producer.flush()
        found.append(each)
    topics.producer.commit_transaction()
    assert sorted(found) == sorted(map(key, range(300)))
    assert polls > 1
    assert list(live_keys(topics.admin, table.topic)) == []


@pytest.mark.usefixtures("passes")
def test_stale_keys(topics: TopicWriter) -> None:
    """As a sweep asks: rows before ``below`` that nothing made fresh or deleted before ``end``."""
    table = topics.table("t", id="int4")
    nothing = ends(topics, table)
    topics.transaction(10, *((table, {"id": i}) for i in range(100)))
    with topics.kafka_transaction():
        for i in range(10):
            topics.delete(table, {"id": i}, 20)
    below = ends(topics, table)
    topics.transaction(30, *((table, {"id": i}) for i in range(5, 60)), *((table, {"id": i}) for i in range(100, 150)))
    with topics.kafka_transaction():
        for i in (70, 71, 120):
            topics.delete(table, {"id": i}, 40)
    with topics.kafka_transaction(commit=False):
        topics.upsert(table, {"id": 72}, 50)
    end = ends(topics, table)
    topics.transaction(60, *((table, {"id": i}) for i in range(60, 90)))
    expected = {key(i) for i in range(60, 100)} - {key(70), key(71)}
    assert stale(topics, below, end) == expected, "what lies behind the end is not looked at"
    assert stale(topics, below, ends(topics, table)) == {key(i) for i in range(90, 100)}
    assert stale(topics, nothing, end) == set()
    assert stale(topics, nothing, nothing) == set()


def test_a_missing_topic_is_named(topics: TopicWriter) -> None:
    with pytest.raises(TopicRefused, match=r"'no\.such\.topic' does not exist"):
        list(live_keys(topics.admin, "no.such.topic"))
