"""Topics of other programs, as a test writes and cleans them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.kafka.brokers import connect
from cdc.kafka.replay.bounded import read_topic
from tests.support.names import unique
from tests.support.topic_settings import create_topic
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually

_TIMEOUT_S: Final = 30.0
CLEANED_SOON: Final = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}
"""Of a topic whose tombstones go within seconds."""


def lose_tombstones(topics: TopicWriter, topic: str, publish: Callable[[int], None], lsn: int) -> int:
    """Wait until the cleaner has removed every tombstone of a topic whose settings are ``CLEANED_SOON``.

    Args:
        topics: writes it.
        topic: its name.
        publish: writes any rows at an LSN, which closes segments.
        lsn: the first one.

    Returns:
        The last LSN.
    """
    lsns = iter(range(lsn, lsn + 10_000, 10))

    def are_gone() -> int:
        at = next(lsns)
        publish(at)
        records = read_topic(topics.admin, topic)
        return at if all(record.value is not None for record in records) else 0

    return eventually(are_gone, 60, "the cleaner removes the tombstones")


class OtherTopic:
    """A topic that no bridge writes.

    Args:
        bootstrap: of the cluster.
        partitions: how many.
        settings: besides ``cleanup.policy: compact``.
    """

    def __init__(self, bootstrap: str, partitions: int = 2, **settings: str) -> None:
        self.name = unique("app-")
        self.bootstrap = bootstrap
        self._options: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._options)
        self._partitions = partitions
        self._settings = {
            "cleanup.policy": "compact",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self._producer = Producer({**self._options, "linger.ms": 1})
        self.create()

    def create(self) -> None:
        """Make it, or make it anew."""
        new = NewTopic(self.name, self._partitions, 1, config=self._settings)
        create_topic(self._admin, new)

    def delete(self) -> None:
        """Delete it, and see it gone."""
        self._admin.delete_topics([self.name])[self.name].result(_TIMEOUT_S)
        eventually(lambda: self.name not in self._admin.list_topics(timeout=_TIMEOUT_S).topics)

    def put(self, rows: dict[bytes, bytes | None]) -> None:
        """Write records, and see them acknowledged."""
        for key, value in rows.items():
            self._producer.produce(self.name, key=key, value=value)
        assert self._producer.flush(_TIMEOUT_S) == 0

    def put_in_transaction(self, rows: dict[bytes, bytes | None], *, commit: bool) -> None:
        """Write records in a Kafka transaction, which is committed or aborted."""
        producer = Producer({**self._options, "transactional.id": uuid.uuid4().hex})
        connect(producer)
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        for key, value in rows.items():
            producer.produce(self.name, key=key, value=value)
        if commit:
            producer.commit_transaction(_TIMEOUT_S)
        else:
            producer.flush(_TIMEOUT_S)
            producer.abort_transaction(_TIMEOUT_S)

    def fold(self) -> dict[bytes, bytes]:
        """The newest value of each key, by a plain consumer."""
        state: dict[bytes, bytes] = {}
        for key, value in self._records():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        return state

    def lose_tombstones(self, filler: bytes = b"filler") -> None:
        """Wait until the cleaner has removed every tombstone; records of one key close the segments meanwhile."""

        def are_gone() -> bool:
            for _ in range(self._partitions):
                for number in range(self._partitions):
                    self._producer.produce(self.name, key=filler, value=b"1", partition=number)
            self._producer.flush(_TIMEOUT_S)
            return all(value is not None for _, value in self._records())

        eventually(are_gone, 60, "the cleaner removes the tombstones")

    def _records(self) -> list[tuple[bytes, bytes | None]]:
        consumer = Consumer(
            {
                **self._options,
                "group.id": uuid.uuid4().hex,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(self.name, number, 0) for number in range(self._partitions)])
        found: list[tuple[bytes, bytes | None]] = []
        open_ends = self._partitions
        while open_ends:
            message = consumer.poll(_TIMEOUT_S)
            assert message is not None, "the consumer waited in vain"
            if message.error() is None:
                key = message.key()
                assert key is not None, "each record has a key"
                found.append((key, message.value()))
            else:
                open_ends -= 1
        consumer.close()
        return found
