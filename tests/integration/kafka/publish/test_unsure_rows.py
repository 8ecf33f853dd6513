"""Rows that got no answer, before a broker that loses connections, or is in trouble, at the wrong moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from cdc.contract.record import Ready
from cdc.kafka.publish.row_producer import RowProducer
from tests.support.fake_broker import TOPIC, FakeBroker
from tests.support.waiting import eventually


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with closing(FakeBroker()) as made:
        yield made


def row(number: int) -> Ready:
    return TOPIC, b"k%d" % number, b"row %d" % number, b"h", None


def poll_until(rows: RowProducer, condition: Callable[[], bool]) -> None:
    def holds() -> bool:
        rows.poll(0.01)
        return condition()

    eventually(holds)


def two_under_way(broker: FakeBroker) -> RowProducer:
    """Each in a request of its own, that the broker has and did not answer."""
    rows = RowProducer(broker.options, max_message_bytes=1_000_000)
    for number in range(3):
        rows.send([row(number)])
        poll_until(rows, lambda: len(broker.produced) == number + 1)
        if number == 0:  # nothing follows a partition's first record before Kafka has it
            broker.answer(broker.produced[0], 0)
            poll_until(rows, lambda: not len(rows))
    return rows


def test_rows_whose_connection_was_lost_may_be_there(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has them in its queue again, and they were purged from there as rows that were never sent."""
    errors: list[KafkaError] = []
    monkeypatch.setattr("cdc.kafka.publish.row_producer.refused_connection", errors.append)
    rows = two_under_way(broker)
    broker.close()
    poll_until(rows, lambda: bool(errors))
    rows.wanted_until = time.monotonic()
    rows.close()
    assert dict(rows.late) == {TOPIC: {b"k1", b"k2"}}


def test_so_may_one_that_a_broker_has_and_was_in_trouble_about(broker: FakeBroker) -> None:
    rows = two_under_way(broker)
    broker.answer(broker.produced[1], KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    rows.poll(0.05)
    rows.wanted_until = time.monotonic()
    rows.close()
    assert dict(rows.late) == {TOPIC: {b"k1", b"k2"}}
