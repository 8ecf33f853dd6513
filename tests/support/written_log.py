"""Partitions written batch by batch at chosen times: what closes segments, so that no test has to wait for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from cdc.kafka.brokers import BrokerAdmin, connect
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from tests.support.names import unique
from tests.support.topic_settings import set_topic

HOUR_MS: Final = 3_600_000

_PATIENT: Final[dict[str, str]] = {
    "cleanup.policy": "compact",
    "segment.ms": str(HOUR_MS),
    # The cleaner starts above a ratio, and no ratio is above one.
    "min.cleanable.dirty.ratio": "1.0",
}


class WrittenLog:
    """A compacted topic of its own. The cleaner leaves it alone until ``allow_cleaning``; segments last an hour.

    Args:
        bootstrap: the broker.
        partitions: how many.
        settings: on top.
    """

    def __init__(self, bootstrap: str, *, partitions: int = 1, **settings: Any) -> None:
        self.topic = unique("log-")
        self._bootstrap = bootstrap
        config = {**_PATIENT, **{name.replace("_", "."): str(value) for name, value in settings.items()}}
        admin = TopicAdmin(BrokerAdmin({"bootstrap.servers": bootstrap}))
        admin.create_missing([TopicSpecification(self.topic, partitions, 1, config)])
        self._producer = self._open()

    def append(self, keys: Iterable[str | None], at_ms: int, *, value: bytes | None = b"v", partition: int = 0) -> None:
        """One record for each key, all of this time."""
        _send(self._producer, self.topic, keys, at_ms, value=value, partition=partition)
        assert self._producer.flush(30) == 0

    def refusal(self, keys: Iterable[str | None], at_ms: int) -> str:
        """Append, and say what the broker has against the last of these records; empty when it took it."""
        said: list[str] = []
        for key in keys:
            self._producer.produce(
                self.topic,
                b"v",
                key,
                timestamp=at_ms,
                on_delivery=lambda error, _: said.append("" if error is None else error.str()),
            )
        self._producer.flush(30)
        return said[-1]

    def leave_open(self, keys: Iterable[str], at_ms: int) -> Producer:
        """Write in a Kafka transaction that is not ended; it is, at last, when the producer is let go."""
        producer = self._open(**{"transactional.id": f"tx-{self.topic}", "transaction.timeout.ms": 600_000})
        connect(producer)
        producer.init_transactions(30)
        producer.begin_transaction()
        _send(producer, self.topic, keys, at_ms, value=b"v", partition=0)
        assert producer.flush(30) == 0
        return producer

    def set(self, name: str, value: object) -> None:
        """Change one of its settings."""
        set_topic(self._bootstrap, self.topic, name, str(value))

    def commit(self, group: str, offset: int) -> None:
        """A consumer group, named after the topic too, has read partition 0 up to here."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": f"{group}-{self.topic}"})
        consumer.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
        consumer.close()

    def allow_cleaning(self) -> None:
        """The cleaner passes as soon as there is anything dirty in a closed segment."""
        self.set("min.cleanable.dirty.ratio", 0.001)

    def _open(self, **options: Any) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20, "batch.size": 900_000, **options})


def _send(
    producer: Producer, topic: str, keys: Iterable[str | None], at_ms: int, *, value: bytes | None, partition: int
) -> None:
    for key in keys:
        while True:
            try:
                producer.produce(topic, value, key, partition=partition, timestamp=at_ms)
            except BufferError:
                producer.poll(0.1)
            else:
                break
