"""The transactional producer against a real broker: all or nothing, fencing, and refusals that name the record."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from cdc.base.errors import FencedError, TopicRefused, TopicUnavailable
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.lab.stack import Kafka
from cdc.lab.stack.embedded import free_port
from tests.support.names import unique
from tests.support.reading import fold_topic
from tests.support.servers import OwnStack
from tests.support.waiting import eventually

COMPACT = {"cleanup.policy": "compact"}
HEADER = b"v=1;op=c;lsn=0/1;seq=1;xid=1;ts=0;schema=0000000000000000"


@pytest.fixture
def options(kafka: Kafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap}


@pytest.fixture
def topic(options: dict[str, str]) -> str:
    name = unique("publisher.")
    TopicAdmin(BrokerAdmin(options)).create_missing([TopicSpecification(name, 2, 1, COMPACT)])
    return name


def publisher(options: dict[str, str], transactional_id: str, max_message_bytes: int = 2_000_000) -> KafkaPublisher:
    made = KafkaPublisher(options, transactional_id=transactional_id, max_message_bytes=max_message_bytes)
    made.start()
    return made


def test_records_are_readable_after_the_commit_and_not_before(options: dict[str, str], topic: str) -> None:
    with closing(publisher(options, topic)) as one:
        one.produce(topic, b"a", b"1", HEADER)
        one.produce(topic, b"b", b"2", HEADER)
        assert one.is_open
        one.commit()
        one.produce(topic, b"a", None, HEADER)
    assert set(fold_topic(options, topic)) == {b"a", b"b"}, "the tombstone was never committed"


def test_the_newer_producer_fences_the_older_one_and_aborts_what_it_left(options: dict[str, str], topic: str) -> None:
    with closing(publisher(options, topic)) as older, closing(publisher(options, topic)) as newer:
        newer.produce(topic, b"new", b"1", HEADER)
        newer.commit()
        with pytest.raises(FencedError) as caught:
            _send(older, topic, b"old", b"1")
        assert topic in caught.value.message
        assert "second bridge" in caught.value.remedy
    assert set(fold_topic(options, topic)) == {b"new"}


def test_a_fenced_producer_says_so_even_when_its_client_notices_first(options: dict[str, str], topic: str) -> None:
    """Its threads learn of it in the background; then even adding a record fails, with a code that says nothing."""
    with closing(publisher(options, topic)) as older, closing(publisher(options, topic)):
        with pytest.raises(FencedError) as caught:
            eventually(lambda: older.produce(topic, b"a", b"stale", HEADER))
        assert f"another producer took over transactional id {topic!r}" in caught.value.message


def test_a_row_too_large_is_refused_by_its_key_and_nothing_of_its_transaction_appears(
    options: dict[str, str], topic: str
) -> None:
    with closing(publisher(options, topic)) as one:
        one.produce(topic, b"small", b"1", HEADER)
        with pytest.raises(TopicRefused) as caught:
            one.produce(topic, b'{"id":7}', bytes(3_000_000), HEADER)
    assert 'row with key {"id":7}' in caught.value.message
    assert topic in caught.value.message
    assert "topics.max_message_bytes" in caught.value.remedy
    assert fold_topic(options, topic) == {}


def test_many_at_once_arrive_in_order_although_the_queue_is_full(options: dict[str, str], topic: str) -> None:
    keys = [b"%d" % number for number in range(2_000)]
    small = {**options, "queue.buffering.max.messages": "50"}
    with closing(publisher(small, topic)) as one:
        one.produce_all([(topic, key, b"1", HEADER, None) for key in keys])
        one.produce_all((topic, key, b"2", HEADER, None) for key in keys)
        one.commit()
    folded = fold_topic(options, topic)
    assert {key: record.value for key, record in folded.items()} == dict.fromkeys(keys, b"2")
    assert {record.header for record in folded.values()} == {HEADER}


def test_of_many_at_once_the_one_too_large_is_named(options: dict[str, str], topic: str) -> None:
    records = [(topic, b"%d" % size, bytes(size), HEADER, None) for size in (1, 3_000_000, 2)]
    with closing(publisher(options, topic)) as one:
        with pytest.raises(TopicRefused) as caught:
            one.produce_all(records)
        assert "row with key 3000000" in caught.value.message
    assert fold_topic(options, topic) == {}


def test_a_row_too_large_for_the_broker_is_refused_by_its_key(options: dict[str, str], topic: str) -> None:
    with (
        closing(publisher(options, topic, max_message_bytes=8_000_000)) as one,
        pytest.raises(TopicRefused) as caught,
    ):
        _send(one, topic, b'{"id":8}', os.urandom(2_000_000))
    assert 'row with key {"id":8}' in caught.value.message
    assert "max.message.bytes" in caught.value.remedy


def test_a_broker_that_is_down_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.kafka.publish.transactional.COMMIT_DEADLINE_S", 2.0)
    options = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    nobody = KafkaPublisher(options, transactional_id="nobody", max_message_bytes=2_000_000)
    with closing(nobody), pytest.raises(TopicUnavailable) as caught:
        nobody.start()
    assert caught.value.retryable


@pytest.mark.pg(matrix=False)
def test_without_the_rights_the_topic_and_the_grant_are_named(own_stack: OwnStack) -> None:
    broker = own_stack.kafka(
        settings={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:nobody-else",
        }
    )
    options = {"bootstrap.servers": broker.bootstrap}
    TopicAdmin(BrokerAdmin(options)).create_missing([TopicSpecification("closed", 1, 1, COMPACT)])
    _forbid_writing(options, "closed")
    with closing(publisher(options, "t")) as one, pytest.raises(TopicRefused) as caught:
        _send(one, "closed", b"a", b"1")
    assert "'closed'" in caught.value.message
    assert "--operation Write" in caught.value.remedy


def _send(one: KafkaPublisher, topic: str, key: bytes, value: bytes) -> None:
    one.produce(topic, key, value, HEADER)
    one.commit()


def _forbid_writing(options: dict[str, str], topic: str) -> None:
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            operation,
            permission,
        )
        for operation, permission in (
            (AclOperation.WRITE, AclPermissionType.DENY),
            (AclOperation.DESCRIBE, AclPermissionType.ALLOW),
        )
    ]
    admin = AdminClient({**options})
    for future in admin.create_acls(rules).values():
        future.result()
