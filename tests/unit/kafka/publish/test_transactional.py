"""What every producer of Kafka transactions waits for, how long, and whose fault it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from cdc.base.errors import ConfigError, FencedError, TopicRefused, TopicUnavailable
from cdc.kafka.publish.application import ApplicationProducer
from cdc.kafka.publish.transactional import PRODUCER_SETTINGS, queue_kbytes
from tests.unit.kafka.publish.in_memory import InMemory

RETRIABLE = KafkaError(KafkaError._TIMED_OUT, "busy", False, True)


@pytest.fixture
def producer(brokers: InMemory) -> Iterator[ApplicationProducer]:
    brokers.create()
    with closing(made(brokers)) as one:
        one.start()
        yield one


def made(brokers: InMemory, **options: object) -> ApplicationProducer:
    settings = {**brokers.options, **{name.replace("_", "."): each for name, each in options.items()}}
    return ApplicationProducer(settings, transactional_id="id", max_message_bytes=10_000)


def test_the_settings_that_order_and_durability_rest_on_are_given_to_the_client(brokers: InMemory) -> None:
    with closing(made(brokers, linger_ms=9)):
        (conf,) = brokers.made
    assert conf["enable.idempotence"] is True
    assert (conf["acks"], conf["partitioner"]) == ("all", "murmur2_random")
    assert conf["transactional.id"] == "id"
    assert conf["message.max.bytes"] == 10_000
    assert conf["linger.ms"] == 9, "the configuration has the last word"
    assert conf["bootstrap.servers"] == brokers.cluster.address


def test_the_queue_has_room_for_two_of_the_largest_records() -> None:
    least = PRODUCER_SETTINGS["queue.buffering.max.kbytes"]
    assert queue_kbytes(1_000) == least
    assert queue_kbytes(least * 512) == least
    assert queue_kbytes(least * 512 + 512) == least + 1
    assert queue_kbytes(100 << 20) == 200 << 10


def test_an_option_that_the_client_does_not_know_is_named(brokers: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        made(brokers, no_such_option="1")


class TestWaiting:
    @pytest.mark.parametrize("call", ["commit_transaction", "init_transactions"])
    def test_what_may_help_is_tried_again_for_a_minute(self, brokers: InMemory, call: str) -> None:
        brokers.create()
        with closing(made(brokers)) as producer:
            if call == "commit_transaction":
                producer.start()
                producer.produce("t", b"k", b"v")
            brokers.cluster.is_silent = True
            began = brokers.turns.now
            with pytest.raises(TopicUnavailable) as caught:
                producer.commit() if call == "commit_transaction" else producer.start()
            assert 59 < brokers.turns.now - began < 63
            assert call in caught.value.message

    def test_brokers_that_come_back_within_it_get_everything(
        self, producer: ApplicationProducer, brokers: InMemory
    ) -> None:
        producer.produce("t", b"k", b"v")
        brokers.fail("commit_transaction", *[RETRIABLE] * 5)
        producer.commit()
        assert brokers.records() == [(b"k", b"v")]

    def test_a_flush_lasts_a_minute_at_most(self, brokers: InMemory) -> None:
        brokers.create()
        with closing(made(brokers, transaction_timeout_ms=300_000)) as producer:
            producer.start()
            producer.produce("t", b"k", b"v")
            brokers.cluster.is_silent = True
            began = brokers.turns.now
            with pytest.raises(TopicUnavailable, match="did not end within a minute"):
                producer.flush()
            assert 60 < brokers.turns.now - began < 61

    def test_a_full_queue_is_waited_for_a_minute_at_most(self, brokers: InMemory) -> None:
        brokers.create()
        with closing(made(brokers, queue_buffering_max_messages=3)) as producer:
            producer.start()
            for number in range(20):
                producer.produce("t", b"%d" % number, b"v")
            producer.commit()
            assert [key for key, _ in brokers.records()] == [b"%d" % number for number in range(20)]
            brokers.cluster.is_silent = True
            for _ in range(3):
                producer.produce("t", b"k", b"v")
            began = brokers.turns.now
            with pytest.raises(TopicUnavailable, match="stayed full for a minute"):
                producer.produce("t", b"k", b"v")
            assert 60 < brokers.turns.now - began < 61
            brokers.cluster.is_silent = False

    def test_the_first_record_of_a_partition_goes_alone(self, producer: ApplicationProducer, brokers: InMemory) -> None:
        brokers.cluster.faults.late_leaders = 1.0
        for number in range(20):
            producer.produce("t", b"%d" % number, b"v")
        producer.commit()
        assert [key for key, _ in brokers.records()] == [b"%d" % number for number in range(20)]

    def test_without_partition_counts_no_record_is_sent(self, producer: ApplicationProducer, brokers: InMemory) -> None:
        brokers.fail("list_topics", KafkaError(KafkaError._TRANSPORT, "away"))
        with pytest.raises(TopicUnavailable, match="list_topics failed: away"):
            producer.produce("t", b"k", b"v")


class TestErrors:
    @pytest.mark.parametrize("call", ["begin_transaction", "produce", "commit_transaction", "flush"])
    def test_whatever_call_fails_it_is_told(self, producer: ApplicationProducer, brokers: InMemory, call: str) -> None:
        calls = {"commit_transaction": producer.commit, "flush": producer.flush}
        if call in calls:
            producer.produce("t", b"k", b"v")
        brokers.fail(call, KafkaError(KafkaError._TRANSPORT, "broken pipe"))
        with pytest.raises(TopicUnavailable, match=f"^{call} failed: broken pipe"):
            calls.get(call, lambda: producer.produce("t", b"k", b"v"))()

    def test_poll_in_a_full_queue(self, brokers: InMemory) -> None:
        brokers.create()
        with closing(made(brokers, queue_buffering_max_messages=1)) as producer:
            producer.start()
            producer.produce("t", b"k", b"v")
            producer.commit()
            producer.produce("t", b"k", b"v")
            brokers.fail("poll", KafkaError(KafkaError._TRANSPORT, "broken pipe"))
            with pytest.raises(TopicUnavailable, match="produce failed: broken pipe"):
                producer.produce("t", b"k", b"v")

    def test_a_call_in_the_wrong_state_asks_why(self, producer: ApplicationProducer, brokers: InMemory) -> None:
        """If Kafka refuses a partition between two records, the second one's call only finds a wrong state."""
        producer.produce("t", b"k", b"v")
        why = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no right")
        for code in (KafkaError._STATE, KafkaError._FATAL):
            brokers.fail("produce", KafkaError(code, "wrong state"))
            brokers.fail("begin_transaction", why)
            with pytest.raises(TopicRefused, match=r"produce for transactional id 'id': no right") as caught:
                producer.produce("t", b"k", b"v")
            assert "--transactional-id id" in caught.value.remedy
            assert "--operation Write" in caught.value.remedy

    def test_a_wrong_state_without_a_cause_is_told_itself(
        self, producer: ApplicationProducer, brokers: InMemory
    ) -> None:
        producer.produce("t", b"k", b"v")
        brokers.fail("produce", KafkaError(KafkaError._STATE, "wrong state"))
        brokers.fail("begin_transaction", KafkaError(KafkaError._FATAL, "fatal"))
        with pytest.raises(TopicUnavailable, match="produce failed: wrong state"):
            producer.produce("t", b"k", b"v")

    def test_a_flush_that_cannot_end_asks_why(self, producer: ApplicationProducer, brokers: InMemory) -> None:
        producer.produce("t", b"k", b"v")
        brokers.cluster.is_silent = True
        brokers.fail("begin_transaction", KafkaError(KafkaError._FENCED))
        began = brokers.turns.now
        with pytest.raises(FencedError):
            producer.flush()
        assert brokers.turns.now - began < 1

    @pytest.mark.parametrize(
        "code",
        [
            KafkaError._FENCED,
            KafkaError.PRODUCER_FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
            KafkaError.FENCED_INSTANCE_ID,
        ],
    )
    def test_all_words_for_a_newer_producer(self, producer: ApplicationProducer, brokers: InMemory, code: int) -> None:
        brokers.fail("begin_transaction", KafkaError(code))
        with pytest.raises(FencedError, match="'id'"):
            producer.produce("t", b"k", b"v")

    def test_topics_that_may_not_be_written_are_named_with_the_commands(
        self, producer: ApplicationProducer, brokers: InMemory
    ) -> None:
        brokers.create("u")
        for topic in ("u", "t"):
            producer.produce(topic, b"k", b"v")
        brokers.fail("commit_transaction", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(TopicRefused, match=r"not authorised to write one of 't', 'u'") as caught:
            producer.commit()
        first, second = caught.value.remedy.splitlines()
        assert "--topic t" in first
        assert "--topic u" in second

    def test_only_topics_of_this_kafka_transaction_are_named(
        self, producer: ApplicationProducer, brokers: InMemory
    ) -> None:
        brokers.create("u")
        producer.produce("u", b"k", b"v")
        producer.commit()
        producer.produce("t", b"k", b"v")
        brokers.fail("commit_transaction", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(TopicRefused, match="not authorised to write topic 't'"):
            producer.commit()

    def test_brokers_that_refuse_the_connection_are_not_tried_again(self, brokers: InMemory) -> None:
        with closing(made(brokers)) as producer:
            brokers.cluster.is_silent = True
            refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
            brokers.cluster.sessions[-1].events.append(refused)
            began = brokers.turns.now
            with pytest.raises(TopicRefused, match="wrong password"):
                producer.start()
            assert brokers.turns.now - began < 5

    def test_a_refusal_ends_the_wait_for_a_flush_and_for_room(self, brokers: InMemory) -> None:
        brokers.create()
        with closing(made(brokers, queue_buffering_max_messages=1)) as producer:
            producer.start()
            producer.produce("t", b"k", b"v")
            producer.commit()
            producer.produce("t", b"k", b"v")
            brokers.cluster.is_silent = True
            brokers.cluster.sessions[-1].events.append(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
            began = brokers.turns.now
            waits: list[Callable[[], object]] = [lambda: producer.produce("t", b"k", b"v"), producer.flush]
            for wait in waits:
                with pytest.raises(TopicRefused, match="wrong password"):
                    wait()
            assert brokers.turns.now - began < 1

    def test_a_record_that_is_lost_fails_its_kafka_transaction(
        self, producer: ApplicationProducer, brokers: InMemory
    ) -> None:
        producer.produce("t", b"k", b"v")
        producer.produce("nowhere", b"k", b"v")
        with pytest.raises(TopicUnavailable):
            producer.commit()
        assert brokers.records() == []

    def test_a_topic_that_we_may_not_write_is_named_by_its_record(
        self, producer: ApplicationProducer, brokers: InMemory
    ) -> None:
        message: Any = Message("closed", 0, 0, b"k", b"v", None, None, (0, 0))
        brokers.made[-1]["on_delivery"](KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), message)
        producer.produce("t", b"k", b"v")
        with pytest.raises(TopicRefused, match="not authorised to write topic 'closed'"):
            producer.flush()
