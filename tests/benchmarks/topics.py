"""What a committed reader sees of the bridge's topics."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.base.lsn import LSN, ZERO

METADATA_TIMEOUT_S = 10.0
POLL_TIMEOUT_S = 0.05
FETCH_RECORDS = 10_000


class Counted(NamedTuple):
    """Committed records of a topic, and how many of them are tombstones."""

    records: int
    tombstones: int


class Content(NamedTuple):
    """A topic's committed records: how many, and by partition a hash of their keys, values and headers in order."""

    counted: Counted
    hashes: tuple[str, ...]


def committed_reader(bootstrap: str, *, end_events: bool = False) -> Consumer:
    """A consumer of committed records that joins no group; with ``end_events`` it tells of each partition's end."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": end_events,
            "log_level": 0,  # a broker that is killed on purpose is not worth a line each 50 ms
        }
    )


def partitions(bootstrap: str, topic: str) -> list[TopicPartition]:
    """The topic's partitions from their beginning; empty while the topic does not exist."""
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=METADATA_TIMEOUT_S)
    known = metadata.topics.get(topic)
    return [TopicPartition(topic, number, 0) for number in sorted(known.partitions)] if known else []


class ProgressWatcher:
    """Follows ``{name}.__progress``; ``reached`` is where the stream is published, as a committed reader sees it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap, self._topic = bootstrap, f"{name}.__progress"
        self._consumer = committed_reader(bootstrap)
        self._assigned = False
        self.reached: LSN = ZERO

    def passed(self, lsn: LSN) -> bool:
        """Read on for at most ``POLL_TIMEOUT_S``; True when everything that committed before ``lsn`` is published."""
        if not self._assigned:
            found = partitions(self._bootstrap, self._topic)
            if not found:
                return False
            self._consumer.assign(found)
            self._assigned = True
        message = self._consumer.poll(POLL_TIMEOUT_S)
        if message is not None:
            self._take(_checked(message))
        return self.reached >= lsn

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if key is None or value is None or "stream" not in json.loads(key):
            return
        self.reached = LSN.parse(json.loads(value)["lsn"])


def read_to_end(consumer: Consumer, unread: Sequence[TopicPartition]) -> Iterator[Message]:
    """The committed records of partitions that nobody writes to meanwhile; the consumer tells of each one's end."""
    consumer.assign(list(unread))
    left = len(unread)
    while left:
        for message in consumer.consume(FETCH_RECORDS, POLL_TIMEOUT_S):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left -= 1
            else:
                yield _checked(message)


def consume(bootstrap: str, topic: str, *, count: bool = False) -> tuple[int, int]:
    """Throw a topic away, record by record: how many there are, and with ``count`` bytes of keys and values."""
    with closing(committed_reader(bootstrap, end_events=True)) as consumer:
        unread = partitions(bootstrap, topic)
        consumer.assign(unread)
        left, records, size = len(unread), 0, 0
        while left:
            batch = consumer.consume(FETCH_RECORDS, 1.0)
            records += len(batch)
            if count:
                size += sum(len(each.key() or b"") + len(each.value() or b"") for each in batch if not each.error())
            ends = sum(each.error() is not None for each in batch)
            left, records = left - ends, records - ends
        return records, size


def read_topic(bootstrap: str, topic: str) -> Content:
    """Read a topic to its end; nobody may write to it meanwhile."""
    with closing(committed_reader(bootstrap, end_events=True)) as consumer:
        unread = partitions(bootstrap, topic)
        hashes = [hashlib.blake2b(digest_size=8) for _ in unread]
        records, tombstones = 0, 0
        for message in read_to_end(consumer, unread):
            records += 1
            tombstones += message.value() is None
            partition = message.partition()
            assert partition is not None, "it was read"
            hashes[partition].update(repr((message.key(), message.value(), message.headers())).encode())
        return Content(Counted(records, tombstones), tuple(each.hexdigest() for each in hashes))


def _checked(message: Message) -> Message:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return message
