"""What the bridge's producer makes readable, in which order, and how it says what Kafka refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from cdc.base.config.checks import MAX_MESSAGE_BYTES
from cdc.base.errors import CdcError, FencedError, TopicRefused, TopicUnavailable
from cdc.base.lsn import LSN
from cdc.contract.change import Column
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.header import INSERT, HeaderStamp
from cdc.contract.history import HistoryEncoder
from cdc.contract.partition import partition_of
from cdc.contract.record import DebeziumModes, Ready, SchemaColumn, TableSchema
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.row_producer import ROWS_PATIENCE_S, Group, RowProducer
from tests.support.waiting import eventually
from tests.unit.kafka.publish.in_memory import InMemory

LARGEST = 10_000


def header(seq: int) -> bytes:
    return HeaderStamp(LSN(9), 7, 0).header(INSERT, seq, "0" * 16)


def row(seq: int, value: bytes | None = b"{}", topic: str = "t", old: bytes | None = None) -> Ready:
    return topic, b"%d" % seq, value, header(seq), old


@pytest.fixture
def publisher(brokers: InMemory) -> Iterator[KafkaPublisher]:
    """Of a bridge that writes Kafka transactions only."""
    brokers.create()
    with closing(KafkaPublisher(brokers.options, transactional_id="cdc-shop", max_message_bytes=LARGEST)) as made:
        made.start()
        yield made


@pytest.fixture
def prompt(brokers: InMemory) -> Iterator[KafkaPublisher]:
    """Of a bridge that sends rows at once."""
    brokers.create()
    with closing(prompt_one(brokers)) as made:
        made.start()
        yield made


def prompt_one(brokers: InMemory, **more: object) -> KafkaPublisher:
    options = {**brokers.options, **{name.replace("_", "."): each for name, each in more.items()}}
    rows = RowProducer(options, max_message_bytes=LARGEST)
    return KafkaPublisher(options, transactional_id="cdc-shop", max_message_bytes=LARGEST, rows=rows)


def relieved(brokers: InMemory, publisher: KafkaPublisher) -> None:
    """Until Kafka has every row that was sent."""

    def is_done() -> bool:
        publisher.relieve()
        return not publisher.has_rows_under_way

    brokers.until(is_done)


def is_open(publisher: KafkaPublisher) -> bool:
    """A property that changes, which mypy takes for one that does not."""
    return publisher.is_open


def is_writing(publisher: KafkaPublisher) -> bool:
    """For the same reason."""
    return publisher.is_writing


class TestKafkaTransactions:
    def test_a_delete_in_an_envelope_is_two_records_however_it_is_sent(self, brokers: InMemory) -> None:
        brokers.create()
        schema = TableSchema("0" * 16, "public", "t", "t", ("id",), (SchemaColumn("id", "int4"),))
        envelopes = EnvelopeMaker("shop", "source", "1", lambda: 0)
        envelopes.learn(schema, [Column("id", 23, -1, "pg_catalog.int4", True)], DebeziumModes())
        made = KafkaPublisher(
            brokers.options, transactional_id="cdc-shop", max_message_bytes=LARGEST, envelopes=envelopes
        )
        with closing(made):
            made.start()
            key = b'{"id":1}'
            made.produce_all([("t", key, key, header(1), None), ("t", key, None, header(2), None)])
            made.produce("t", b'{"id":2}', None, header(3))
            made.commit()
        found = brokers.records()
        operations = [None if value is None else json.loads(value)["op"] for _, value in found]
        assert operations == ["c", "d", None, "d", None]
        assert [key for key, _ in found] == [b'{"id":1}'] * 3 + [b'{"id":2}'] * 2

    def test_a_record_keeps_key_value_and_header(self, publisher: KafkaPublisher, brokers: InMemory) -> None:
        publisher.produce("t", b"k", b"{}", header(1))
        publisher.produce("t", b"gone", None, header(2))
        assert is_open(publisher)
        assert brokers.records() == []
        publisher.commit()
        assert not is_open(publisher)
        assert brokers.records() == [(b"k", b"{}"), (b"gone", None)]
        assert brokers.headers() == [header(1), header(2)]

    def test_many_at_once_are_as_one_after_the_other(self, publisher: KafkaPublisher, brokers: InMemory) -> None:
        brokers.create("u", 3)
        records = [row(number, topic="u") for number in range(30)]
        publisher.produce_all(iter(records[:20]))
        publisher.commit()
        publisher.produce_all(records[20:25])  # each partition has a first record by now
        publisher.produce_all(records[25:])
        publisher.commit()
        for number in range(3):
            expected = [each for each in records if partition_of(each[1], 3) == number]
            assert brokers.records("u", number) == [(each[1], each[2]) for each in expected]
            assert brokers.headers("u", number) == [each[3] for each in expected]
            for each in brokers.messages("u", number):
                assert abs(each.timestamp()[1] - brokers.turns.now * 1_000) < 60_000, "the cleaner goes by that"

    def test_of_many_at_once_the_first_one_of_a_partition_goes_alone(
        self, publisher: KafkaPublisher, brokers: InMemory
    ) -> None:
        brokers.cluster.faults.late_leaders = 1.0
        publisher.produce_all([row(number) for number in range(20)])
        publisher.commit()
        assert [key for key, _ in brokers.records()] == [b"%d" % number for number in range(20)]

    def test_a_topic_of_many_at_once_that_may_not_be_written_is_named(
        self, publisher: KafkaPublisher, brokers: InMemory
    ) -> None:
        for _ in range(2):  # the second time, the partition has a first record
            publisher.produce_all([row(1)])
            publisher.commit()
        publisher.produce_all([row(2)])
        brokers.fail("commit_transaction", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(TopicRefused, match="not authorised to write topic 't'"):
            publisher.commit()

    def test_many_at_once_wait_where_the_queue_is_full(self, brokers: InMemory) -> None:
        brokers.create()
        options = {**brokers.options, "queue.buffering.max.messages": 5}
        with closing(KafkaPublisher(options, transactional_id="x", max_message_bytes=LARGEST)) as publisher:
            publisher.start()
            publisher.produce_all([row(number) for number in range(50)])
            publisher.commit()
        assert brokers.records() == [(b"%d" % number, b"{}") for number in range(50)]

    def test_a_row_that_is_too_large_is_named_among_many(self, publisher: KafkaPublisher, brokers: InMemory) -> None:
        publisher.produce_all([row(1)])
        publisher.commit()
        with pytest.raises(TopicRefused) as caught:
            publisher.produce_all([row(2), row(3, b"x" * 20_000), row(4)])
        size = len(b"3") + 20_000 + len(header(3))
        assert caught.value.message == f"the row with key 3 at LSN 0/9 is too large for topic 't' ({size} bytes)"
        assert caught.value.remedy == (
            "raise topics.max_message_bytes in the configuration and max.message.bytes of topic 't'; a row above "
            f"{MAX_MESSAGE_BYTES} bytes cannot be published: publish the table without its large column (a column list)"
        )
        assert brokers.records() == [(b"1", b"{}")]

    def test_a_row_that_is_too_large_for_its_topic_is_named(self, brokers: InMemory) -> None:
        """The brokers refuse a batch for its largest record, and report every record of it."""
        brokers.create(max_message_bytes="1000")
        with closing(KafkaPublisher(brokers.options, transactional_id="x", max_message_bytes=LARGEST)) as publisher:
            publisher.start()
            publisher.produce_all([row(1, b"x"), row(2, b"x" * 2_000), row(3, b"x" * 500)])
            with pytest.raises(TopicRefused, match="the row with key 2 at LSN 0/9 is too large for topic 't'"):
                publisher.commit()
        assert brokers.records() == []

    def test_a_record_of_our_own_that_is_too_large_has_no_lsn(self, publisher: KafkaPublisher) -> None:
        with pytest.raises(TopicRefused, match=r"the row with key \ufffd is too large for topic 't' \(20001 bytes\)"):
            publisher.produce("t", b"\xff", b"x" * 20_000, b"")

    def test_a_buried_key_gets_its_tombstone_where_it_does_not_belong(
        self, publisher: KafkaPublisher, brokers: InMemory
    ) -> None:
        brokers.create("u", 3)
        elsewhere = (partition_of(b"k", 3) + 1) % 3
        publisher.bury("u", elsewhere, b"k", header(5))
        publisher.commit()
        assert brokers.records("u", elsewhere) == [(b"k", None)]
        assert brokers.headers("u", elsewhere) == [header(5)]

    def test_what_a_newer_bridge_has_taken_over_is_not_written(
        self, publisher: KafkaPublisher, brokers: InMemory
    ) -> None:
        publisher.produce("t", b"old", b"{}", header(1))
        with closing(KafkaPublisher(brokers.options, transactional_id="cdc-shop", max_message_bytes=LARGEST)) as newer:
            newer.start()
            newer.produce("t", b"new", b"{}", header(1))
            newer.commit()
            with pytest.raises(FencedError, match="'cdc-shop'"):
                publisher.commit()
        assert brokers.records() == [(b"new", b"{}")]

    def test_closing_takes_back_what_is_not_committed(self, brokers: InMemory) -> None:
        brokers.create()
        with closing(KafkaPublisher(brokers.options, transactional_id="x", max_message_bytes=LARGEST)) as publisher:
            publisher.start()
            publisher.produce("t", b"k", b"{}", header(1))
            brokers.turns.settle()
        brokers.turns.settle()
        log = brokers.cluster.log("t", 0)
        assert log is not None
        assert log.stable == log.end, "no reader waits for its end"
        assert brokers.records() == []

    def test_queued_is_what_kafka_has_not_acknowledged(self, publisher: KafkaPublisher, brokers: InMemory) -> None:
        publisher.produce("t", b"1", b"{}", header(1))
        assert publisher.queued == 1
        brokers.turns.settle()
        publisher.relieve()
        assert publisher.queued == 0
        publisher.commit()

    def test_the_end_that_was_asked_for_twice_lets_no_other_transaction_begin(
        self, publisher: KafkaPublisher, brokers: InMemory
    ) -> None:
        """The first request may commit that one in the middle."""
        brokers.cluster.faults.late_ends = 1.0
        publisher.produce("t", b"1", b"{}", header(1))
        publisher.commit()
        with pytest.raises(TopicUnavailable, match="asked for that twice"):
            publisher.produce("t", b"2", b"{}", header(2))
        assert not publisher.is_open
        assert brokers.records() == [(b"1", b"{}")]


class TestHistory:
    @pytest.fixture
    def publisher(self, brokers: InMemory) -> Iterator[KafkaPublisher]:
        for topic in ("t", "h", "u"):
            brokers.create(topic)
        encoder = HistoryEncoder({"t": "h"}, lambda value, _: value)
        made = KafkaPublisher(brokers.options, transactional_id="x", max_message_bytes=LARGEST, history=encoder)
        with closing(made):
            made.start()
            yield made

    def test_a_change_is_in_both_topics_with_the_row_before(self, publisher: KafkaPublisher, brokers: InMemory) -> None:
        publisher.produce_all([row(1, b'{"a":2}', old=b'{"a":1}'), row(2, topic="u")])
        publisher.produce("t", b"2", None, header(3), b'{"a":5}')
        publisher.commit()
        assert brokers.records("t") == [(b"1", b'{"a":2}'), (b"2", None)]
        assert brokers.records("u") == [(b"2", b"{}")]
        assert [key for key, _ in brokers.records("h")] == [b"1", b"2"]
        told = [json.loads(value or b"") for _, value in brokers.records("h")]
        assert [(each["seq"], each["new"], each["old"]) for each in told] == [
            (1, {"a": 2}, {"a": 1}),
            (3, None, {"a": 5}),
        ]
        assert brokers.headers("h") == [header(1), header(3)]


class TestRowsAtOnce:
    def test_rows_are_readable_without_a_commit(self, prompt: KafkaPublisher, brokers: InMemory) -> None:
        prompt.send_rows([row(1), row(2, None)])
        group = prompt.next_group()
        assert not group.is_acked
        prompt.send_rows([row(3)])
        assert prompt.has_rows_under_way
        assert prompt.queued >= 1
        relieved(brokers, prompt)
        assert (group.sent, group.acked, group.is_acked) == (2, 2, True)
        assert prompt.next_group().sent == 1
        assert prompt.next_group().sent == 0
        assert prompt.queued == 0
        assert brokers.records() == [(b"1", b"{}"), (b"2", None), (b"3", b"{}")]
        assert brokers.headers() == [header(1), header(2), header(3)]

    def test_a_kafka_transaction_begins_behind_them(self, prompt: KafkaPublisher, brokers: InMemory) -> None:
        prompt.send_rows([row(1)])
        prompt.send_rows([row(2)])
        prompt.produce("t", b"3", b"{}", header(3))
        assert not prompt.has_rows_under_way
        prompt.commit()
        assert [key for key, _ in brokers.records()] == [b"1", b"2", b"3"]

    def test_a_progress_is_a_kafka_transaction_of_its_own_which_the_next_one_waits_for(
        self, prompt: KafkaPublisher, brokers: InMemory
    ) -> None:
        brokers.create("p")
        prompt.write("p", b"stream", b"1")
        assert is_writing(prompt)
        eventually(prompt.is_written)
        assert not is_writing(prompt)
        assert not prompt.is_written(), "told once"
        prompt.write("p", b"stream", b"2")
        prompt.produce("t", b"k", b"{}", header(1))
        assert not is_writing(prompt)
        prompt.commit()
        assert brokers.records("p") == [(b"stream", b"1"), (b"stream", b"2")]
        assert brokers.records("t") == [(b"k", b"{}")]

    def test_a_progress_that_cannot_be_written_is_told(self, prompt: KafkaPublisher, brokers: InMemory) -> None:
        brokers.fail("begin_transaction", KafkaError(KafkaError._TRANSPORT))
        prompt.write("t", b"stream", b"1")
        with pytest.raises(TopicUnavailable):
            eventually(prompt.is_written)
        assert not prompt.is_writing

    def test_a_row_that_is_too_large_is_named(self, prompt: KafkaPublisher, brokers: InMemory) -> None:
        with pytest.raises(TopicRefused) as caught:
            prompt.send_rows([row(1), row(2, b"x" * 20_000), row(3)])
        size = len(b"2") + 20_000 + len(header(2))
        assert caught.value.message == f"the row with key 2 at LSN 0/9 is too large for topic 't' ({size} bytes)"
        relieved(brokers, prompt)
        assert [key for key, _ in brokers.records()] == [b"1"]

    def test_a_row_that_is_too_large_for_its_topic_is_named_and_nothing_follows_it(self, brokers: InMemory) -> None:
        """A row behind it would say that everything before is there."""
        brokers.create(max_message_bytes="1000")
        with closing(prompt_one(brokers)) as prompt:
            prompt.start()
            prompt.send_rows([row(1)])
            relieved(brokers, prompt)
            prompt.send_rows([row(2, b"x" * 900), row(3, b"x" * 2_000), row(4)])
            attempts: list[Callable[[], object]] = [
                lambda: relieved(brokers, prompt),
                lambda: prompt.send_rows([row(5)]),
                prompt.relieve,
            ]
            for attempt in attempts:
                with pytest.raises(TopicRefused, match="the row with key 3 at LSN 0/9 is too large for topic 't'"):
                    attempt()
            with pytest.raises(TopicRefused, match="the row with key 3"):
                prompt.produce("t", b"6", b"{}", header(6))
        assert b"5" not in [key for key, _ in brokers.records()]
        assert b"6" not in [key for key, _ in brokers.records()]

    def test_a_client_that_takes_no_row_says_why(self, prompt: KafkaPublisher, brokers: InMemory) -> None:
        brokers.fail("produce", KafkaError(KafkaError._UNKNOWN_PARTITION, "no such partition"))
        with pytest.raises(TopicUnavailable, match="cannot send rows to Kafka: no such partition"):
            prompt.send_rows([row(1)])

    def test_brokers_that_refuse_the_connection_are_told(self, prompt: KafkaPublisher, brokers: InMemory) -> None:
        prompt.relieve()
        refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
        brokers.cluster.sessions[-1].events.append(refused)
        brokers.cluster.sessions[0].events.append(refused)
        with pytest.raises(TopicRefused, match="wrong password"):
            prompt.relieve()

    def test_while_brokers_are_away_rows_are_not_waited_for_for_ever(
        self, prompt: KafkaPublisher, brokers: InMemory
    ) -> None:
        prompt.send_rows([row(0)])
        relieved(brokers, prompt)
        brokers.cluster.is_silent = True
        prompt.proved(brokers.turns.now - ROWS_PATIENCE_S + 1.0)
        prompt.send_rows([row(1)])
        began = brokers.turns.now
        with pytest.raises(TopicUnavailable, match=r"within 2\.5 s"):
            prompt.produce("t", b"2", b"{}", header(2))
        assert 0.9 < brokers.turns.now - began < 1.2, "as long as there was proof"

    def test_a_row_that_the_brokers_had_after_the_time_for_it_is_late_until_a_newer_proof(
        self, prompt: KafkaPublisher, brokers: InMemory
    ) -> None:
        prompt.send_rows([row(0)])
        relieved(brokers, prompt)
        brokers.cluster.is_silent = True
        prompt.proved(brokers.turns.now)
        prompt.send_rows([row(1)])
        brokers.turns.now += ROWS_PATIENCE_S + 0.1
        brokers.cluster.is_silent = False
        relieved(brokers, prompt)
        assert dict(prompt.late) == {"t": {b"1"}}
        prompt.proved(brokers.turns.now - 1.0)
        assert dict(prompt.late) == {"t": {b"1"}}, "a proof from before says nothing"
        prompt.proved(brokers.turns.now + 0.001)
        assert dict(prompt.late) == {}

    def test_closing_takes_back_the_rows_that_have_not_left(self, brokers: InMemory) -> None:
        brokers.create()
        prompt = prompt_one(brokers)
        prompt.start()
        prompt.send_rows([row(0)])
        relieved(brokers, prompt)
        prompt.proved(brokers.turns.now - ROWS_PATIENCE_S - 1.0)
        brokers.cluster.is_silent = True
        prompt.send_rows([row(1)])
        prompt.close()
        assert dict(prompt.late) == {"t": {b"1"}}, "nobody can tell whether they had left"
        brokers.cluster.is_silent = False
        assert brokers.records() == [(b"0", b"{}")]


def test_without_a_row_producer_there_are_no_rows_under_way(publisher: KafkaPublisher) -> None:
    assert not publisher.has_rows_under_way
    assert publisher.late == {}
    group = publisher.next_group()
    assert isinstance(group, Group)
    assert group.is_acked
    publisher.proved(0.0)
    publisher.relieve()


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TopicRefused, "--transactional-id cdc-shop"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, TopicRefused, "--transactional-id cdc-shop"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, TopicRefused, "--topic t"),
        (KafkaError._TRANSPORT, TopicUnavailable, "a broker up"),
    ],
)
def test_who_may_not_write_is_told_the_right_that_is_missing(
    publisher: KafkaPublisher, brokers: InMemory, code: int, kind: type[CdcError], says: str
) -> None:
    publisher.produce("t", b"k", b"{}", header(1))
    brokers.fail("commit_transaction", KafkaError(code))
    with pytest.raises(kind) as caught:
        publisher.commit()
    assert says in caught.value.remedy
