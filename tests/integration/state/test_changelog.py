"""A service's own state: recovered after a restart, moved between instances, refused when offsets do not fit it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from cdc.base.errors import ConfigError, FencedError, TopicRefused, TopicUnavailable
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.kafka.replay.bounded import partitions_of, read_topic
from cdc.state import ChangelogStore, PartitionState, StoredRecord, TopicsConfig
from tests.support.reading import fold_topic
from tests.support.topic_settings import delete_records, make_topic
from tests.support.waiting import eventually

PARTITIONS = 3


@pytest.fixture
def source(options: dict[str, Any], name: str) -> str:
    """Events of three partitions."""
    topic = f"{name}-events"
    make_topic(options, topic, PARTITIONS, "delete")
    return topic


class Shop:
    """Writes events, and opens stores that count them."""

    def __init__(self, options: dict[str, Any], name: str, source: str, stack: ExitStack) -> None:
        self.options, self.name, self.source, self._stack = options, name, source, stack
        self.changelog = f"{name}-activity-changelog"
        self._producer = Producer({**options, "partitioner": "murmur2_random"})
        self.sent: Counter[tuple[bytes, str]] = Counter()

    def send(self, user: bytes, kind: str, times: int = 1) -> None:
        for _ in range(times):
            self._producer.produce(self.source, key=user, value=orjson.dumps({"kind": kind}))
        self._producer.flush()
        self.sent[user, kind] += times

    def open(self, instance: str = "0", **more: Any) -> ChangelogStore:
        arguments = {"app": self.name, "store": "activity", "source": self.source, "instance": instance, **more}
        return self._stack.enter_context(ChangelogStore(self.options, **arguments))

    def catch_up(self, *stores: ChangelogStore) -> None:
        eventually(lambda: [each.step(count, timeout_s=0.1) for each in stores] and self.in_changelog() == self.sent)

    def in_changelog(self) -> Counter[tuple[bytes, str]]:
        state = {key: orjson.loads(each.value) for key, each in fold_topic(self.options, self.changelog).items()}
        return Counter({(user, kind): times for user, kinds in state.items() for kind, times in kinds.items()})


def count(event: StoredRecord, state: PartitionState) -> None:
    assert event.key is not None
    assert event.value is not None
    kinds = state.get(event.key) or {}
    kind = orjson.loads(event.value)["kind"]
    state.put(event.key, {**kinds, kind: kinds.get(kind, 0) + 1})


@pytest.fixture
def shop(options: dict[str, Any], name: str, source: str) -> Iterator[Shop]:
    with ExitStack() as stack:
        yield Shop(options, name, source, stack)


def test_state_and_offsets_go_on_after_a_restart(shop: Shop) -> None:
    shop.send(b"alice", "login_count", 3)
    shop.send(b"alice", "purchases", 2)
    shop.send(b"bob", "login_count")
    store = shop.open()
    shop.catch_up(store)
    store.close()
    shop.send(b"alice", "login_count", 2)
    again = shop.open()
    shop.catch_up(again)
    states = {key: value for part in again.parts.values() for key, value in part.items()}
    assert states == {b"alice": {"login_count": 5, "purchases": 2}, b"bob": {"login_count": 1}}


def test_the_changelog_has_the_partitions_of_its_source_and_says_what_made_each_value(shop: Shop) -> None:
    for number in range(20):
        shop.send(b"user-%d" % number, "login_count")
    shop.catch_up(shop.open())
    settings = TopicAdmin(BrokerAdmin(shop.options)).drift(
        [TopicSpecification(shop.changelog, PARTITIONS, 1, {"cleanup.policy": "compact"})]
    )
    assert settings == []
    made_by = {}
    for record in read_topic(BrokerAdmin(shop.options), shop.source):
        made_by[record.key] = record.partition, record.offset
    for record in read_topic(BrokerAdmin(shop.options), shop.changelog):
        assert (record.partition, orjson.loads(record.header)["source"]) == made_by[record.key]


def test_what_the_cleaner_leaves_is_enough(shop: Shop) -> None:
    quickly = TopicsConfig(segment_ms=100, min_compaction_lag_ms=0, min_cleanable_dirty_ratio=0.01)
    store = shop.open(topics=quickly)
    written = 0

    def is_compacted() -> bool:
        nonlocal written
        shop.send(b"alice", "login_count")
        shop.catch_up(store)
        written += 1
        left = list(read_topic(BrokerAdmin(shop.options), shop.changelog))
        return len(left) < written - 5

    eventually(is_compacted)
    store.close()
    again = shop.open(topics=quickly)
    shop.send(b"alice", "login_count")
    shop.catch_up(again)
    assert {key: value for part in again.parts.values() for key, value in part.items()} == {
        b"alice": {"login_count": written + 1}
    }


def test_a_step_that_fails_has_not_happened(shop: Shop) -> None:
    shop.send(b"alice", "login_count", 3)

    def fail_late(event: StoredRecord, state: PartitionState) -> None:
        count(event, state)
        if event.offset == 2:
            raise ZeroDivisionError

    store = shop.open()
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: store.step(fail_late, timeout_s=0.1))
    assert shop.in_changelog() == {}
    with pytest.raises(TopicUnavailable, match="closed"):
        store.step(count)
    shop.catch_up(shop.open())


def test_deletes_reach_the_changelog_and_stay_deleted(shop: Shop) -> None:
    def forget_on_logout(event: StoredRecord, state: PartitionState) -> None:
        if event.value and b"logout" in event.value and event.key:
            state.delete(event.key)
            assert state.get(event.key) is None
        else:
            count(event, state)

    shop.send(b"alice", "login")
    shop.send(b"alice", "logout")
    shop.send(b"bob", "login")
    store = shop.open()
    eventually(lambda: store.step(forget_on_logout, timeout_s=0.1) == 0 and store.parts and shop.in_changelog())
    assert fold_topic(shop.options, shop.changelog).keys() == {b"bob"}
    store.close()
    again = shop.open()
    eventually(lambda: again.step(forget_on_logout, timeout_s=0.1) or len(again.parts) == PARTITIONS)
    assert [key for part in again.parts.values() for key, _ in part.items()] == [b"bob"]


def test_partitions_and_their_state_move_to_a_second_instance(shop: Shop) -> None:
    users = [b"user-%d" % number for number in range(30)]
    for user in users:
        shop.send(user, "login_count")
    one = shop.open("one")
    shop.catch_up(one)
    assert len(one.parts) == PARTITIONS
    two = shop.open("two")
    for user in users:
        shop.send(user, "login_count")
    shop.catch_up(one, two)
    eventually(lambda: [each.step(count, timeout_s=0.1) for each in (one, two)] and one.parts and two.parts)
    assert one.parts.keys() | two.parts.keys() == {0, 1, 2}
    assert not one.parts.keys() & two.parts.keys()
    for user in users:
        shop.send(user, "login_count")
    shop.catch_up(one, two)
    assert set(shop.in_changelog().values()) == {3}


def test_more_instances_than_partitions(shop: Shop, options: dict[str, Any], name: str) -> None:
    shop.source = f"{name}-narrow"
    make_topic(options, shop.source, 1, "delete")
    stores = [shop.open(instance) for instance in ("one", "two", "three")]
    shop.send(b"alice", "login_count")
    shop.catch_up(*stores)
    shop.send(b"alice", "login_count")
    shop.catch_up(*stores)
    assert sorted(len(each.parts) for each in stores) == [0, 0, 1]


def test_a_second_process_with_the_same_name_takes_over_and_the_first_is_told(shop: Shop) -> None:
    shop.send(b"alice", "login_count")
    first = shop.open()
    shop.catch_up(first)
    second = shop.open()
    shop.send(b"alice", "login_count")
    shop.catch_up(second)
    shop.send(b"alice", "login_count")
    with pytest.raises(FencedError):
        eventually(lambda: first.step(count, timeout_s=0.1) and False, timeout_s=20)
    shop.catch_up(second)


def set_back(options: dict[str, Any], group: str, place: TopicPartition) -> None:
    """As kafka-consumer-groups.sh --reset-offsets does, which waits until no member is left."""
    outside = Consumer({**options, "group.id": group})
    producer = Producer({**options, "transactional.id": f"{group}-operator"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([place], outside.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    outside.close()


def test_a_changelog_ahead_of_the_offsets_is_refused(shop: Shop) -> None:
    """An operator set the group back: every record would be counted a second time."""
    shop.send(b"alice", "login_count", 5)
    store = shop.open("a")
    shop.catch_up(store)
    (number,) = {each.partition for each in read_topic(BrokerAdmin(shop.options), shop.changelog)}
    store.close()
    set_back(shop.options, f"{shop.name}-activity", TopicPartition(shop.source, number, 2))
    again = shop.open("a")
    with pytest.raises(TopicRefused, match=r"offset \d of partition .* puts at 2: records would be counted twice"):
        eventually(lambda: again.step(count, timeout_s=0.1), timeout_s=20)


def test_a_changelog_that_was_made_anew_does_not_pass_for_one_that_holds_nothing(shop: Shop) -> None:
    """The group would go on behind events of which nothing is left."""
    shop.send(b"alice", "login_count", 5)
    store = shop.open("a")
    shop.catch_up(store)
    (number,) = {each.partition for each in read_topic(BrokerAdmin(shop.options), shop.changelog)}
    store.close()
    admin = AdminClient(shop.options)
    admin.delete_topics([shop.changelog])[shop.changelog].result(30)
    eventually(lambda: shop.changelog not in TopicAdmin(BrokerAdmin(shop.options)).partitions())
    shop.send(b"alice", "login_count")
    again = shop.open("a")
    with pytest.raises(TopicRefused, match="was recreated, but the consumer group still has the offsets") as caught:
        eventually(lambda: again.step(count, timeout_s=0.1), timeout_s=20)
    assert "--to-earliest" in caught.value.remedy
    set_back(shop.options, f"{shop.name}-activity", TopicPartition(shop.source, number, 0))
    shop.catch_up(shop.open("a"))
    assert shop.in_changelog() == {(b"alice", "login_count"): 6}


def test_another_number_of_partitions_is_refused(shop: Shop) -> None:
    make_topic(shop.options, shop.changelog, 2, "compact")
    with pytest.raises(TopicRefused, match=r"has 2 partitions, and its source .* has 3"):
        shop.open()


def test_a_source_that_grows_is_refused_at_once_and_not_counted_apart(shop: Shop) -> None:
    """Its keys now come to other partitions than their state."""
    shop.options = {**shop.options, "topic.metadata.refresh.interval.ms": "200"}
    shop.send(b"alice", "login_count")
    store = shop.open()
    shop.catch_up(store)
    admin = AdminClient(shop.options)
    admin.create_partitions([NewPartitions(shop.source, PARTITIONS + 1)])[shop.source].result(30)
    eventually(lambda: len(partitions_of(BrokerAdmin(shop.options), shop.source)) == PARTITIONS + 1)
    with pytest.raises(TopicRefused, match=r"has 3 partitions, and its source .* has 4"):
        eventually(lambda: store.step(count, timeout_s=0.1) > 1, timeout_s=30)
    with pytest.raises(TopicRefused, match=r"has 3 partitions, and its source .* has 4"):
        shop.open("another")


def test_a_changelog_of_somebody_else_is_refused(shop: Shop) -> None:
    make_topic(shop.options, shop.changelog, 3, "compact")
    other = Producer(shop.options)
    other.produce(shop.changelog, key=b"alice", value=b"{}")
    other.flush()
    store = shop.open()
    with pytest.raises(TopicRefused, match="not written by a ChangelogStore"):
        eventually(lambda: store.step(count, timeout_s=0.1), timeout_s=20)


def test_a_group_whose_offsets_kafka_has_forgotten_does_not_count_everything_again(shop: Shop) -> None:
    make_topic(shop.options, shop.changelog, 3, "compact")
    former = Producer(shop.options)
    former.produce(shop.changelog, key=b"alice", value=b'{"login_count":8}', headers=[("cdc", b'{"source":7}')])
    former.flush()
    store = shop.open()
    with pytest.raises(TopicRefused, match="does not know: records would be counted twice"):
        eventually(lambda: store.step(count, timeout_s=0.1), timeout_s=20)


def test_events_that_were_deleted_before_they_were_read_are_told(shop: Shop) -> None:
    shop.send(b"alice", "login_count", 3)
    store = shop.open()
    shop.catch_up(store)
    store.close()
    shop.send(b"alice", "login_count", 3)
    delete_records(shop.options["bootstrap.servers"], shop.source)
    again = shop.open()
    with pytest.raises(TopicRefused, match="no longer has the offset") as caught:
        eventually(lambda: again.step(count, timeout_s=0.1), timeout_s=20)
    assert "--reset-offsets" in caught.value.remedy


@pytest.mark.parametrize(("app", "store"), [("", "a"), ("a", ""), ("a b", "c"), ("a" * 200, "b" * 50)])
def test_names_that_make_no_topic_are_refused(options: dict[str, Any], app: str, store: str) -> None:
    with pytest.raises(ConfigError):
        ChangelogStore(options, app=app, store=store, source="t")


def test_a_source_that_is_not_there(options: dict[str, Any], name: str) -> None:
    with pytest.raises(TopicRefused, match="does not exist"):
        ChangelogStore(options, app=name, store="s", source=f"{name}-missing")
