"""Which records wait for the first one of their partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc.contract.partition import partition_of
from cdc.kafka.publish.first_records import FirstRecords

COUNT = 3
KEYS = [b"%d" % number for number in range(20)]
"""Some for each partition."""


class Client:
    """Kafka's client, as far as the partition counts go."""

    def __init__(self) -> None:
        self.counts = {"t": COUNT}
        self.asked = 0
        self.error: KafkaError | None = None

    def list_topics(self, topic: str, _timeout_s: float) -> Any:
        self.asked += 1
        if self.error is not None:
            raise KafkaException(self.error)
        count = self.counts.get(topic, 0)
        error = None if count else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=dict.fromkeys(range(count)))})


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def first(client: Client) -> FirstRecords:
    made: Any = client
    return FirstRecords(made, lambda: 0.0)


def test_the_second_record_of_a_partition_waits_for_the_first(first: FirstRecords) -> None:
    of_each = [next(key for key in KEYS if partition_of(key, COUNT) == number) for number in range(COUNT)]
    assert [first.must_wait("t", key) for key in of_each] == [False] * COUNT
    assert [first.must_wait("t", key) for key in of_each] == [True] * COUNT
    assert not first.complete
    first.arrived()
    assert [first.must_wait("t", key) for key in KEYS] == [False] * len(KEYS)
    assert first.complete == {"t"}


def test_a_partition_without_a_record_leaves_the_topic_incomplete(first: FirstRecords, client: Client) -> None:
    keys = [key for key in KEYS if partition_of(key, COUNT) == 1]
    assert not first.must_wait("t", keys[0])
    first.arrived()
    assert not any(first.must_wait("t", key) for key in keys)
    assert not first.complete
    assert client.asked == 1


def test_a_partition_that_is_named_counts_and_not_the_keys(first: FirstRecords) -> None:
    key = KEYS[0]
    elsewhere = (partition_of(key, COUNT) + 1) % COUNT
    assert not first.must_wait("t", key, elsewhere)
    assert not first.must_wait("t", key)
    assert first.must_wait("t", key, elsewhere)


def test_a_topic_that_does_not_exist_is_asked_for_again(first: FirstRecords, client: Client) -> None:
    assert not first.must_wait("u", b"k")
    assert not first.must_wait("u", b"k")
    client.counts["u"] = 1
    assert not first.must_wait("u", b"k")
    assert first.must_wait("u", b"k")
    assert client.asked == 3


def test_without_an_answer_no_record_counts_as_sent(first: FirstRecords, client: Client) -> None:
    client.error = KafkaError(KafkaError._TRANSPORT)
    with pytest.raises(KafkaException):
        first.must_wait("t", b"k")
    client.error = None
    assert not first.must_wait("t", b"k")


@pytest.mark.parametrize(("age_s", "is_known"), [(3_599.0, True), (3_601.0, False)])
def test_what_arrived_long_ago_arrives_again(client: Client, age_s: float, is_known: bool) -> None:
    made: Any = client
    now = [1e6]
    first = FirstRecords(made, lambda: now[0])
    for key in KEYS:
        first.must_wait("t", key)
    first.arrived()
    now[0] += age_s
    first.refresh()
    assert ("t" in first.complete) == is_known
    first.must_wait("t", b"k")
    assert first.must_wait("t", b"k") != is_known


def test_what_did_not_arrive_is_forgotten(first: FirstRecords) -> None:
    first.must_wait("t", b"k")
    first.forget()
    assert not first.must_wait("t", b"k")
    assert first.must_wait("t", b"k")
