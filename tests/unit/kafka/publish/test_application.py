"""An application's producer: it knows where its records are, and drops what it aborts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from cdc.base.errors import FencedError, TopicRefused, TopicUnavailable
from cdc.contract.partition import partition_of
from cdc.kafka.publish.application import ApplicationProducer
from tests.unit.kafka.publish.in_memory import InMemory


@pytest.fixture
def producer(brokers: InMemory) -> Iterator[ApplicationProducer]:
    brokers.create()
    with closing(made(brokers)) as one:
        yield one


def made(brokers: InMemory) -> ApplicationProducer:
    one = ApplicationProducer(brokers.options, transactional_id="app", max_message_bytes=10_000, stores_offsets=True)
    one.start()
    return one


def test_a_record_is_written_as_it_was_given(producer: ApplicationProducer, brokers: InMemory) -> None:
    brokers.create("u", 3)
    assert partition_of(b"k", 3) != 1
    producer.produce("u", b"k", b"v", b"h", 1)
    producer.produce("t", b"gone", None)
    producer.commit()
    assert brokers.records("u", 1) == [(b"k", b"v")]
    assert brokers.headers("u", 1) == [b"h"]
    assert brokers.records("t") == [(b"gone", None)]
    assert brokers.headers("t") == [None]


def test_the_newest_offset_of_each_key_is_known_once_the_brokers_have_it(
    producer: ApplicationProducer, brokers: InMemory
) -> None:
    brokers.create("u")
    for value in (b"1", b"2"):
        producer.produce("t", b"k", value)
        producer.produce("t", b"other", value)
    producer.produce("u", b"k", b"1")
    assert dict(producer.flush()) == {("t", b"k"): 2, ("t", b"other"): 3, ("u", b"k"): 0}
    producer.commit()
    producer.produce("t", b"third", b"1")
    assert dict(producer.flush()) == {("t", b"third"): 5}, "of this Kafka transaction, behind the marker of the last"


def test_what_is_aborted_is_never_readable_and_the_next_one_is(
    producer: ApplicationProducer, brokers: InMemory
) -> None:
    producer.produce("t", b"dropped", b"1")
    brokers.turns.settle()
    producer.produce("t", b"dropped too", b"1")
    producer.abort()
    assert not producer.is_open
    producer.produce("t", b"k", b"2")
    assert set(producer.flush()) == {("t", b"k")}
    producer.commit()
    assert brokers.records() == [(b"k", b"2")]


def test_an_abort_without_an_open_transaction_changes_nothing(producer: ApplicationProducer, brokers: InMemory) -> None:
    producer.abort()
    producer.produce("t", b"k", b"1")
    producer.commit()
    assert brokers.records() == [(b"k", b"1")]


def test_after_a_record_that_was_refused_an_abort_lets_the_work_go_on(
    producer: ApplicationProducer, brokers: InMemory
) -> None:
    brokers.create("small", max_message_bytes="100")
    producer.produce("small", b"k\xff", b"x" * 1_000)
    with pytest.raises(TopicRefused, match="the value of key k\ufffd is too large for topic 'small'"):
        producer.flush()
    producer.abort()
    producer.produce("t", b"k", b"1")
    assert dict(producer.flush()) == {("t", b"k"): 0}
    producer.commit()
    assert brokers.records() == [(b"k", b"1")]
    assert brokers.records("small") == []


def test_reports_that_never_come_end_an_abort(
    producer: ApplicationProducer, brokers: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that came later would count for the next Kafka transaction."""
    producer.produce("t", b"k", b"1")
    monkeypatch.setattr(brokers.client, "abort_transaction", lambda *_: None)
    brokers.cluster.is_silent = True
    began = brokers.turns.now
    with pytest.raises(TopicUnavailable, match="after a minute"):
        producer.abort()
    assert 59 < brokers.turns.now - began < 61


def test_offsets_of_a_group_open_a_kafka_transaction(producer: ApplicationProducer, brokers: InMemory) -> None:
    producer.add_offsets({("in", 3): 17, ("in", 4): 0}, "group", "note")
    assert producer.is_open
    assert brokers.groups == [([("in", 3, 17, "note"), ("in", 4, 0, "note")], "group")]
    producer.produce("t", b"k", b"1")
    producer.add_offsets({("in", 3): 18}, "group")
    assert brokers.groups[1:] == [([("in", 3, 18, "")], "group")]
    producer.commit()
    assert brokers.records() == [(b"k", b"1")]


def test_offsets_are_sent_again_while_that_may_help(producer: ApplicationProducer, brokers: InMemory) -> None:
    busy = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "busy", False, True)
    brokers.fail("send_offsets_to_transaction", busy, busy)
    producer.add_offsets({("in", 3): 17}, "group")
    assert len(brokers.groups) == 1


@pytest.mark.parametrize(
    "code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS]
)
def test_offsets_of_partitions_that_another_instance_has_are_refused(
    producer: ApplicationProducer, brokers: InMemory, code: int
) -> None:
    brokers.fail("send_offsets_to_transaction", KafkaError(code))
    with pytest.raises(TopicUnavailable) as caught:
        producer.add_offsets({("in", 3): 17}, "group")
    assert caught.value.message.startswith(
        "the consumer group gave our partitions to another instance, because this one was silent"
    )
    assert caught.value.remedy == "open it again: the other instance processes what this one had read"


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError._TRANSPORT, TopicUnavailable, "send_offsets_to_transaction failed"),
        (KafkaError.FENCED_INSTANCE_ID, FencedError, "another producer took over"),
    ],
)
def test_offsets_that_are_refused_for_another_reason(
    producer: ApplicationProducer, brokers: InMemory, code: int, kind: type[Exception], says: str
) -> None:
    brokers.fail("send_offsets_to_transaction", KafkaError(code))
    with pytest.raises(kind, match=says):
        producer.add_offsets({("in", 3): 17}, "group")


def test_offsets_that_were_asked_for_twice_are_watched_for_only_with_a_group(brokers: InMemory) -> None:
    with (
        closing(made(brokers)),
        closing(ApplicationProducer(brokers.options, transactional_id="x", max_message_bytes=9)),
    ):
        assert ["protocol" in each["debug"] for each in brokers.made] == [True, False]


def test_an_abort_that_fails_is_told(producer: ApplicationProducer, brokers: InMemory) -> None:
    producer.produce("t", b"k", b"1")
    producer.flush()
    brokers.cluster.is_away = True
    began = brokers.turns.now
    with pytest.raises(TopicUnavailable, match="abort_transaction failed"):
        producer.abort()
    assert 59 < brokers.turns.now - began < 63


def test_a_record_that_no_topic_takes_is_told(producer: ApplicationProducer, brokers: InMemory) -> None:
    producer.produce("nowhere", b"k", b"1")
    with pytest.raises(TopicUnavailable):
        producer.flush()


def test_an_older_instance_is_told_that_the_newer_one_writes(producer: ApplicationProducer, brokers: InMemory) -> None:
    producer.produce("t", b"k", b"1")
    with closing(made(brokers)) as newer:
        newer.produce("t", b"k", b"2")
        newer.commit()
        with pytest.raises(FencedError) as caught:
            producer.commit()
    assert "the one that started later is the only writer" in caught.value.remedy
    assert brokers.records() == [(b"k", b"2")]
