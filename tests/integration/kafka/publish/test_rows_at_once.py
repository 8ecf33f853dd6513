"""The idempotent producer beside the transactional one, on a real broker: order, acknowledgements, and no gap."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from cdc.base.errors import CdcError, FencedError, TopicRefused, TopicUnavailable
from cdc.base.lsn import LSN
from cdc.contract.header import INSERT, HeaderStamp
from cdc.contract.record import Ready
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish import row_producer
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.row_producer import RowProducer
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.kafka.replay.bounded import read_topic
from cdc.lab.stack import Kafka
from tests.support.names import unique
from tests.support.topic_settings import make_topic
from tests.support.waiting import eventually

LARGEST = 100_000


@pytest.fixture
def options(kafka: Kafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap}


@pytest.fixture
def topic(options: dict[str, str]) -> str:
    """It takes less in one record than the bridge thinks."""
    name = unique("prompt.")
    settings = {"cleanup.policy": "compact", "max.message.bytes": str(LARGEST // 2)}
    TopicAdmin(BrokerAdmin(options)).create_missing([TopicSpecification(name, 1, 1, settings)])
    return name


@pytest.fixture
def publisher(options: dict[str, str], topic: str) -> Iterator[KafkaPublisher]:
    with closing(started(options, topic)) as made:
        yield made


def started(options: dict[str, str], topic: str, **more: str) -> KafkaPublisher:
    """``more`` options have underscores for dots."""
    settings = {**options, "compression.type": "none"}
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    rows = RowProducer(settings, max_message_bytes=LARGEST)
    made = KafkaPublisher(settings, transactional_id=f"{topic}-id", max_message_bytes=LARGEST, rows=rows)
    made.start()
    return made


def wait_until_relieved(publisher: KafkaPublisher) -> None:
    """Until no row is under way."""

    def is_relieved() -> bool:
        publisher.relieve()
        return not publisher.has_rows_under_way

    eventually(is_relieved)


def row(topic: str, seq: int, value: bytes = b"{}") -> Ready:
    return topic, b"%d" % seq, value, HeaderStamp(LSN(9), 7, 0).header(INSERT, seq, "0" * 16), None


def keys(options: dict[str, str], topic: str) -> list[bytes | None]:
    return [each.key for each in read_topic(BrokerAdmin(options), topic)]


def test_rows_are_readable_without_a_commit_and_acknowledged_by_group(
    publisher: KafkaPublisher, options: dict[str, str], topic: str
) -> None:
    publisher.send_rows([row(topic, 1), row(topic, 2)])
    first = publisher.next_group()
    publisher.send_rows([row(topic, 3)])

    def acked() -> bool:
        publisher.relieve()
        return first.is_acked

    eventually(acked)
    assert first.sent == 2
    assert not publisher.is_open
    assert keys(options, topic)[:2] == [b"1", b"2"]


def test_a_kafka_transaction_begins_behind_every_row_that_was_sent(
    publisher: KafkaPublisher, options: dict[str, str], topic: str
) -> None:
    for number in range(0, 600, 3):
        publisher.send_rows([row(topic, number), row(topic, number + 1)])
        publisher.produce(topic, b"%d" % (number + 2), b"{}", row(topic, number + 2)[3])
        assert not publisher.has_rows_under_way
        publisher.commit()
    assert keys(options, topic) == [b"%d" % number for number in range(600)]


def test_progress_is_written_beside_rows_and_waited_for_by_what_comes_next(
    publisher: KafkaPublisher, options: dict[str, str], topic: str
) -> None:
    publisher.write(topic, b"progress", b"1")
    publisher.send_rows([row(topic, 1)])
    eventually(publisher.is_written)
    publisher.write(topic, b"progress", b"2")
    publisher.produce(topic, b"2", b"{}", row(topic, 2)[3])
    assert not publisher.is_writing
    publisher.commit()
    assert sorted(map(bytes, filter(None, keys(options, topic)))) == [b"1", b"2", b"progress", b"progress"]


def test_behind_a_row_that_the_brokers_refuse_nothing_is_written(options: dict[str, str], topic: str) -> None:
    """Else the last row would say that those before it are there."""
    publisher = started(options, topic)
    publisher.send_rows([row(topic, 1)])
    wait_until_relieved(publisher)
    rows = [row(topic, 2, b"x" * (LARGEST * 3 // 4)), *(row(topic, number) for number in range(3, 200))]

    def refused() -> CdcError | None:
        try:
            publisher.send_rows([rows.pop(0)] if rows else [])
            publisher.relieve()
        except CdcError as error:
            return error
        return None

    error = eventually(refused)
    assert isinstance(error, TopicRefused), error
    assert "key 2" in error.message
    publisher.close()
    assert keys(options, topic) == [b"1"]


def test_the_row_that_the_brokers_refuse_is_named_also_while_others_wait_for_room(
    options: dict[str, str], topic: str
) -> None:
    """Behind a backlog the queue is full when the refusal comes; the row that waits for room then is another one."""
    with closing(started(options, topic, queue_buffering_max_messages="10")) as publisher:
        rows = [row(topic, 2, b"x" * (LARGEST * 3 // 4)), *(row(topic, number) for number in range(3, 200))]
        with pytest.raises(TopicRefused, match="key 2 "):
            publisher.send_rows(rows)


def test_of_a_batch_that_the_brokers_refuse_the_largest_row_is_named(options: dict[str, str], topic: str) -> None:
    """They refuse all of it, and small rows come first."""
    rows = [*(row(topic, number) for number in range(3, 9)), row(topic, 2, b"x" * (LARGEST * 3 // 4)), row(topic, 9)]
    with closing(started(options, topic, linger_ms="200")) as publisher:
        publisher.send_rows(rows)
        with pytest.raises(TopicRefused, match="key 2 "):
            eventually(lambda: publisher.relieve())
    with closing(started(options, topic, linger_ms="200")) as publisher:
        publisher.produce_all(rows)
        with pytest.raises(TopicRefused, match="key 2 "):
            publisher.commit()


def test_no_row_goes_out_behind_one_that_the_client_gave_up(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not know the topic for a moment: no gapless guarantee, and no report before it is asked for.

    In the topic the later row would say that the earlier one is there, and the next start would leave that out.
    """
    topic, clients = unique("prompt."), list[Producer]()

    def opened(*args: Any, **more: Any) -> Producer:
        clients.append(Producer(*args, **more))
        return clients[-1]

    monkeypatch.setattr(row_producer, "Producer", opened)
    with closing(started(options, topic, topic_metadata_propagation_max_ms="500")) as publisher:
        metadata = clients.pop().list_topics
        publisher.send_rows([row(topic, 1)])
        credible = time.monotonic() + 0.55  # before that, the client does not believe that there is no such topic
        eventually(lambda: metadata(topic, 5).topics[topic].error is not None and time.monotonic() > credible)
        make_topic(options, topic, 1, "compact")
        eventually(lambda: metadata(topic, 5).topics[topic].error is None)
        with pytest.raises(TopicUnavailable, match="Unknown topic"):
            publisher.send_rows([row(topic, 2)])
    assert keys(options, topic) == []


def test_a_row_that_is_too_large_is_refused_with_its_key(publisher: KafkaPublisher, topic: str) -> None:
    with pytest.raises(TopicRefused, match="key 7"):
        publisher.send_rows([row(topic, 7, b"x" * 2 * LARGEST)])


def test_rows_that_kafka_took_without_proof_are_known_at_the_end(options: dict[str, str], topic: str) -> None:
    """The process stood still: nobody else can tell which keys have old rows behind newer ones."""
    publisher = started(options, topic)
    publisher.proved(time.monotonic())
    publisher.send_rows([row(topic, 1)])
    wait_until_relieved(publisher)
    publisher.send_rows([row(topic, 2), row(topic, 3)])
    publisher.proved(time.monotonic() - 60)
    wait_until_relieved(publisher)
    publisher.close()
    assert publisher.late == {topic: {b"2", b"3"}}


def test_who_was_fenced_learns_it_from_its_progress(
    publisher: KafkaPublisher, options: dict[str, str], topic: str
) -> None:
    with closing(started(options, topic)):
        publisher.write(topic, b"progress", b"1")
        with pytest.raises(FencedError):
            eventually(publisher.is_written)
