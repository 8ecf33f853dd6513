"""The two sides that a script about Kafka runs on: the world in memory, and a real broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from tests.support.waiting import eventually
from tests.world import kafka_clients
from tests.world.kafka import KafkaCluster
from tests.world.kafka_alone import AloneWithKafka

WAIT_S: Final = 30.0
_OVERLOOKED_AFTER_S: Final = 0.1
"""A client sometimes misses who leads a partition, until other metadata wakes it (``cdc.kafka.brokers``)."""
_PRODUCER: Final[Mapping[str, Any]] = {
    "partitioner": "murmur2_random",
    "enable.idempotence": True,
    "error_cb": lambda _: None,
}
_CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "no-group",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    "topic.metadata.propagation.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "error_cb": lambda _: None,
}


class Clients(Protocol):
    """One side: makes clients, and does what only an operator or the time does."""

    def producer(self, conf: Mapping[str, Any]) -> Any:
        """Returns a producer, idempotent unless the settings say otherwise."""

    def consumer(self, conf: Mapping[str, Any]) -> Any:
        """Returns a consumer of committed records, unless the settings say otherwise."""

    def admin(self) -> Any:
        """Returns an admin client."""

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition is true."""

    def clean(self, topic: str) -> None:
        """Have the closed segments of a topic's first partition compacted: all before its newest record."""

    def take_away(self) -> None:
        """Let the brokers go away."""

    def bring_back(self) -> None:
        """Let the brokers come back, with all that they had."""


class WorldClients:
    """The world in memory."""

    def __init__(self, turns: AloneWithKafka, cluster: KafkaCluster) -> None:
        kafka_clients.listen(cluster)
        self._turns, self._cluster = turns, cluster
        self._options = {"bootstrap.servers": cluster.address}

    def producer(self, conf: Mapping[str, Any]) -> Any:
        return kafka_clients.Producer({**self._options, **_PRODUCER, **conf})

    def consumer(self, conf: Mapping[str, Any]) -> Any:
        return kafka_clients.Consumer({**self._options, **_CONSUMER, **conf})

    def admin(self) -> Any:
        return kafka_clients.AdminClient(self._options)

    def until(self, condition: Callable[[], object]) -> None:
        for _ in range(1_000):
            self._turns.settle()
            if condition():
                return
            self._turns.now += 0.1
        raise AssertionError("never")

    def clean(self, topic: str) -> None:
        log = self._cluster.topics[topic].partitions[0]
        self._cluster.clean(topic, 0, log.offsets[-1])

    def take_away(self) -> None:
        self._cluster.is_away = True

    def bring_back(self) -> None:
        self._cluster.is_away = False


class BrokerClients:
    """A real broker.

    Args:
        bootstrap: its address.
        stop, start: end it and start it again, if the scripts may.
    """

    def __init__(
        self,
        bootstrap: str,
        stop: Callable[[], object] | None = None,
        start: Callable[[], object] | None = None,
    ) -> None:
        # Who is to come back soon looks for it often
        self._options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        }
        self._stop, self._start = stop, start
        # One for all questions: a client that is freed before its answer comes never hears it
        self._admin = AdminClient(self._options)

    def producer(self, conf: Mapping[str, Any]) -> Any:
        made = Producer({**self._options, **_PRODUCER, **conf})
        made.list_topics(timeout=WAIT_S)  # a producer whose connection is not up yet waits for half a second
        return made

    def consumer(self, conf: Mapping[str, Any]) -> Any:
        return Consumer({**self._options, **_CONSUMER, **conf})

    def admin(self) -> Any:
        return self._admin

    def until(self, condition: Callable[[], object]) -> None:
        eventually(condition)

    def clean(self, topic: str) -> None:
        before = first_offsets(self, topic)
        set_topic(self, topic, "min.cleanable.dirty.ratio", "0.001")
        eventually(lambda: first_offsets(self, topic) != before)

    def take_away(self) -> None:
        assert self._stop is not None
        self._stop()

    def bring_back(self) -> None:
        assert self._start is not None
        self._start()
        eventually(self._are_led)

    def _are_led(self) -> bool:
        topics = self._admin.list_topics(timeout=WAIT_S).topics.values()
        return all(each.leader >= 0 for topic in topics for each in topic.partitions.values())


def told(error: KafkaError | None) -> object:
    """Returns what a program can decide by: the code's name, and whether it is fatal, retriable, or wants an abort."""
    if error is None:
        return None
    return error.name(), error.fatal(), error.retriable(), error.txn_requires_abort()


def tried(call: Callable[[], object]) -> object:
    """Returns "done", or the error of a call."""
    try:
        call()
    except KafkaException as error:
        return told(error.args[0])
    except BufferError:
        return "BufferError"
    return "done"


def set_topic(clients: Clients, topic: str, name: str, value: str) -> object:
    """Change a setting of a topic; returns the outcome."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = clients.admin()
    return tried(lambda: admin.incremental_alter_configs([resource])[resource].result(WAIT_S))


def ends(clients: Clients, topic: str, count: int = 1, *, committed: bool = False) -> list[int]:
    """Returns the high watermark of each partition, or the last stable offset."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    asked = {TopicPartition(topic, number): latest for number in range(count)}
    return [each.offset for each in answered(clients, topic, asked, isolation_level=level)]


def low(clients: Clients, topic: str) -> int:
    """Returns the low watermark of the first partition."""
    place = TopicPartition(topic, 0)
    earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client gives it no types
    found: int = answered(clients, topic, {place: earliest})[0].offset
    return found


def answered(clients: Clients, topic: str, asked: Mapping[TopicPartition, OffsetSpec], **options: Any) -> list[Any]:
    """Returns the answers to a question about offsets, in order."""
    admin = clients.admin()
    answers = admin.list_offsets(asked, **options)
    if wait(answers.values(), _OVERLOOKED_AFTER_S).not_done:
        admin.list_topics(topic, timeout=WAIT_S)
    return [answers[place].result(WAIT_S) for place in asked]


def until_ended(clients: Clients, topic: str, count: int = 1) -> None:
    """Wait until no transaction is open any more: markers follow the commit."""
    clients.until(lambda: ends(clients, topic, count) == ends(clients, topic, count, committed=True))


def taken(consumer: Any, wanted: int) -> list[Any]:
    """Returns the next messages, events among them."""
    messages: list[Any] = []
    for _ in range(300):
        messages += consumer.consume(wanted - len(messages), 0.1)
        if len(messages) == wanted:
            return messages
    raise AssertionError(f"{len(messages)} of {wanted} came")


def shown(message: Any) -> object:
    """Returns what a program sees of a message."""
    if message.error() is not None:
        return message.error().name(), message.partition(), message.offset()
    return message.partition(), message.offset(), message.key(), message.value()


def read(clients: Clients, topic: str, count: int = 1, **conf: Any) -> list[object]:
    """Returns what a new reader sees of a topic, partition by partition, up to each end."""
    consumer = clients.consumer({name.replace("_", "."): value for name, value in conf.items()})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
    messages: list[Any] = []
    while sum(each.error() is not None for each in messages) < count:
        messages += taken(consumer, 1)
    consumer.close()
    return [shown(each) for number in range(count) for each in messages if each.partition() == number]


def first_offsets(clients: Clients, topic: str) -> list[object]:
    """Returns what is in the first partition, of open transactions too."""
    return read(clients, topic, isolation_level="read_uncommitted")
