"""The world's Kafka does at will what a real one does seldom, and then, too, keeps its promises."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tests.world.kafka import KafkaCluster
from tests.world.kafka_alone import AloneWithKafka, kafka_alone
from tests.world.kafka_clients import Consumer, Producer, listen

WAIT_S = 600.0
KEYS = [b"%d" % number for number in range(5)]


class World:
    """A cluster with one topic of two partitions."""

    def __init__(self, seed: int, **settings: str) -> None:
        self.turns: AloneWithKafka
        self.cluster: KafkaCluster
        self.turns, self.cluster = kafka_alone(seed)
        listen(self.cluster)
        self.cluster.create("t", 2, {name.replace("_", "."): value for name, value in settings.items()})

    def producer(self, **conf: Any) -> Producer:
        """Returns an idempotent producer."""
        return Producer(self._conf({"enable_idempotence": True, **conf}))

    def begun(self, **conf: Any) -> Producer:
        """Returns a producer that has begun a transaction."""
        producer = self.producer(**{"transactional_id": "id", **conf})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        return producer

    def consumer(self, **conf: Any) -> Consumer:
        """Returns a consumer of committed records of both partitions."""
        consumer = Consumer(self._conf({"enable_partition_eof": True, **conf}))
        consumer.assign([TopicPartition("t", number, 0) for number in (0, 1)])
        return consumer

    def read(self) -> list[Message]:
        """Returns all committed records."""
        consumer = self.consumer(enable_partition_eof=False)
        self.turns.settle()
        return consumer.consume(10_000, 0)

    def values(self) -> list[bytes | None]:
        """Returns the values of all committed records."""
        return [each.value() for each in self.read()]

    def _conf(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap.servers": self.cluster.address, **{name_of(key): conf[key] for key in conf}}


def commit(producer: Producer) -> str:
    """Returns "done", or the name of the error."""
    try:
        producer.commit_transaction(WAIT_S)
    except KafkaException as error:
        return str(error.args[0].name())
    return "done"


def name_of(key: str) -> str:
    """Returns a setting's name; callbacks are the ones with underscores."""
    return key if key == "error_cb" else key.replace("_", ".")


def fold(records: list[Message]) -> dict[bytes | None, bytes]:
    """Returns the newest value of each key."""
    found: dict[bytes | None, bytes] = {}
    for each in records:
        if (value := each.value()) is None:
            found.pop(each.key(), None)
        else:
            found[each.key()] = value
    return found


def test_a_commit_of_unknown_outcome_has_one() -> None:
    outcomes = set()
    for seed in range(50):
        world = World(seed)
        producer = world.begun()
        producer.produce("t", b"v", b"k")
        world.cluster.faults.unknown_outcomes = 1.0
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(WAIT_S)
        assert raised.value.args[0].code() == KafkaError._TIMED_OUT
        assert raised.value.args[0].retriable()
        world.cluster.lose(world.turns.process)
        world.begun()  # who takes over waits until the outcome is known
        outcomes.add(tuple(world.values()))
    assert outcomes == {(), (b"v",)}


def test_a_commit_of_unknown_outcome_may_be_called_again() -> None:
    for seed in range(20):
        world = World(seed)
        producer = world.begun()
        producer.produce("t", b"v", b"k")
        world.cluster.faults.unknown_outcomes = 0.5
        outcomes: list[str] = []
        while "done" not in outcomes:
            outcomes.append(commit(producer))
        assert set(outcomes) <= {"done", "_TIMED_OUT"}
        assert world.values() == [b"v"]


def test_a_late_commit_may_tear_the_next_transaction_but_not_that_of_a_newer_producer() -> None:
    """As a real broker does (``tests/fault/test_bad_network.py``)."""
    seen = set()
    for seed in range(100):
        world = World(seed)
        producer = world.begun()
        producer.produce("t", b"1", b"k")
        world.cluster.faults.late_ends = 1.0
        producer.commit_transaction(WAIT_S)
        world.cluster.faults.late_ends = 0.0
        producer = world.begun() if seed % 2 else producer
        if seed % 2 == 0:
            producer.begin_transaction()
        producer.produce("t", b"2", b"k")
        producer.flush(WAIT_S)
        seen.add((bool(seed % 2), tuple(world.values())))
    assert seen == {(False, (b"1",)), (False, (b"1", b"2")), (True, (b"1",))}


@pytest.mark.parametrize("seed", range(200))
def test_compaction_at_any_step_keeps_the_state(seed: int) -> None:
    world = World(seed, cleanup_policy="compact")
    rng, wanted = random.Random(seed), dict[bytes | None, bytes]()
    follower, followed = world.consumer(enable_partition_eof=False), list[Message]()
    world.cluster.faults.cleaning, world.cluster.faults.lost_connections = 0.3, 0.1
    producer = world.begun()
    for transaction in range(15):
        written: dict[bytes, bytes | None] = {}
        for number in range(rng.randint(0, 5)):
            key = rng.choice(KEYS)
            written[key] = None if rng.random() < 0.2 else b"%d.%d" % (transaction, number)
            producer.produce("t", written[key], key)
        if rng.random() < 0.3:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            for each, value in written.items():
                wanted.pop(each, None)
                if value is not None:
                    wanted[each] = value
        producer.begin_transaction()
        followed += follower.consume(rng.randint(1, 3), 0)
    world.turns.settle()
    followed += follower.consume(10_000, 0)
    assert fold(world.read()) == fold(followed) == wanted
    for number in (0, 1):
        offsets = [each.offset() for each in followed if each.partition() == number]
        assert offsets == sorted(set(offsets), key=lambda offset: offset or 0)


@pytest.mark.parametrize("seed", range(100))
def test_a_lost_connection_neither_repeats_nor_reorders(seed: int) -> None:
    world = World(seed)
    world.cluster.faults.lost_connections = 0.4
    reported: list[int | None] = []
    producer = world.producer()
    for number in range(50):
        producer.produce("t", b"%d" % number, b"k", 0, lambda _, message: reported.append(message.offset()))
    assert producer.flush(WAIT_S) == 0
    assert world.values() == [b"%d" % number for number in range(50)]
    assert reported == list(range(50))


def test_a_producer_without_idempotence_repeats() -> None:
    lengths = set()
    for seed in range(50):
        world = World(seed)
        world.cluster.faults.lost_connections = 0.3
        producer = world.producer(enable_idempotence=False)
        producer.produce("t", b"v", b"k")
        producer.flush(WAIT_S)
        lengths.add(len(world.values()))
    assert {1, 2} <= lengths


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_a_client_gives_up_may_arrive(is_killed: bool) -> None:
    lengths = set()
    for seed in range(100):
        world = World(seed)
        producer = world.producer()
        for number in range(10):
            producer.produce("t", b"%d" % number, b"k")
        for _ in range(seed % 8):
            if steps := world.cluster.steps():
                world.turns.rng.choice(steps)()
        if is_killed:
            world.cluster.lose(world.turns.process)
        else:
            producer.purge()
        arrived = world.values()
        assert arrived == [b"%d" % number for number in range(len(arrived))], "what arrives is a prefix"
        lengths.add(len(arrived))
    assert {0, 10} < lengths, lengths


def test_the_transaction_of_a_killed_program_stays_open_until_its_timeout() -> None:
    world = World(0)
    producer = world.begun()
    producer.produce("t", b"open", b"k", 0)
    producer.flush(WAIT_S)
    world.cluster.lose(world.turns.process)
    log = world.cluster.topics["t"].partitions[0]
    assert (log.stable, log.end) == (0, 1)
    world.turns.wait(lambda: log.stable == 2, 61)
    assert world.values() == []
    assert log.end == 2


def test_a_commit_is_seen_partition_by_partition() -> None:
    seen = set()
    for seed in range(50):
        world = World(seed)
        producer = world.begun()
        for number in (0, 1):
            producer.produce("t", b"v", b"k", number)
        producer.commit_transaction(WAIT_S)
        seen.add(tuple(log.stable for log in world.cluster.topics["t"].partitions))
        world.turns.settle()
        assert len(world.values()) == 2
    assert seen == {(0, 0), (0, 2), (2, 0), (2, 2)}


def test_the_cleaner_keeps_tombstones_for_a_while_and_the_young_for_longer() -> None:
    world = World(0, cleanup_policy="compact", delete_retention_ms="10000", min_compaction_lag_ms="5000")
    producer = world.producer()
    for value in (b"1", None):
        producer.produce("t", value, b"k", 0)
    producer.flush(WAIT_S)
    log = world.cluster.topics["t"].partitions[0]
    offsets = []
    for pause_s in (0, 6, 9, 2):
        world.turns.now += pause_s
        world.cluster.clean("t", 0)
        offsets.append(log.offsets[:])
    assert offsets == [[0, 1], [1], [1], []]
    assert (log.low, log.end) == (0, 2)


def test_silent_brokers_tell_nobody() -> None:
    world = World(0)
    heard: list[KafkaError] = []
    producer = world.producer(error_cb=heard.append)
    world.cluster.is_silent = True
    with pytest.raises(KafkaException) as raised:
        producer.list_topics(timeout=1)
    producer.poll(0)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert heard == []


def test_a_seed_is_a_history() -> None:
    def history(seed: int) -> list[object]:
        world = World(seed)
        world.cluster.faults.lost_connections = 0.3
        for name in ("one", "two"):
            producer = world.begun(transactional_id=name)
            for number in range(20):
                producer.produce("t", b"%d" % number, b"%d" % number)
            producer.commit_transaction(WAIT_S)
        found: list[object] = [(each.partition(), each.offset(), each.timestamp()) for each in world.read()]
        return [*found, world.turns.now, str(world.cluster.topics["t"].topic_id)]

    assert history(1) == history(1)
    assert history(1) != history(2)
