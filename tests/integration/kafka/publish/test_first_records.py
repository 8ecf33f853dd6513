"""A broker that refuses a producer's first record for a moment, and has no sequence number of it (KIP-360)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest
from confluent_kafka import KafkaError

from cdc.kafka.publish.application import ApplicationProducer
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.row_producer import RowProducer
from tests.support.fake_broker import TOPIC, FakeBroker
from tests.support.waiting import eventually

SETTINGS = {"linger.ms": 0, "retry.backoff.ms": 1}


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with closing(FakeBroker()) as made:
        yield made


def refuse_the_first(broker: FakeBroker, sending: Thread) -> None:
    """Refuse the first request as a broker that is not the leader yet; take what comes afterwards.

    The next request has to be the same one again. Without a wait for it, that would be the second record, and the
    client would believe that the broker has both.
    """
    sending.start()
    eventually(lambda: broker.produced)
    broker.answer(broker.produced[0], KafkaError.NOT_LEADER_FOR_PARTITION)
    eventually(lambda: len(broker.produced) > 1)
    broker.takes_all = True
    broker.answer(broker.produced[1], 0)
    sending.join(30)
    assert not sending.is_alive()
    taken = [(each.sequence, each.rows) for each in broker.produced[1:]]
    assert taken[0] == (0, 1)
    assert sum(rows for _, rows in taken) == 3
    assert [sequence for sequence, _ in taken] == sorted({sequence for sequence, _ in taken})


def all_taken(rows: RowProducer) -> bool:
    rows.poll(0.01)
    return not len(rows)


def test_rows_at_once(broker: FakeBroker) -> None:
    rows = RowProducer({**broker.options, **SETTINGS}, max_message_bytes=1_000_000)

    def send() -> None:
        for number in range(3):
            rows.send([(TOPIC, b"k%d" % number, b"v", b"h", None)])
        eventually(lambda: all_taken(rows))

    refuse_the_first(broker, Thread(target=send))
    assert rows.next_group().is_acked
    rows.close()


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_kafka_transaction(broker: FakeBroker, is_listed: bool) -> None:
    publisher = KafkaPublisher({**broker.options, **SETTINGS}, transactional_id="x", max_message_bytes=1_000_000)
    publisher.start()
    records = [(TOPIC, b"k%d" % number, b"v", b"h", None) for number in range(3)]

    def send() -> None:
        for record in records[: 0 if is_listed else 3]:
            publisher.produce(*record)
        publisher.produce_all(records[: 3 if is_listed else 0])
        publisher.commit()

    refuse_the_first(broker, Thread(target=send))
    publisher.close()


def test_an_applications_kafka_transaction(broker: FakeBroker) -> None:
    options = {**broker.options, **SETTINGS}
    producer = ApplicationProducer(options, transactional_id="x", max_message_bytes=1_000_000)
    producer.start()

    def send() -> None:
        for number in range(3):
            producer.produce(TOPIC, b"k%d" % number, b"v")
        producer.flush()
        producer.commit()

    refuse_the_first(broker, Thread(target=send))
    producer.close()
