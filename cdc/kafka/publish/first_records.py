"""Sends a producer's first record in a partition alone, so that a broker cannot skip it.

A producer has several requests on their way to a partition. Brokers keep their order by sequence numbers, but a broker
that has no number of this producer yet takes any as the first one (KIP-360). If such a broker refuses the first request
for a moment, because it has only just become the partition's leader, and then takes the second, librdkafka believes
that both are stored ("implicit ack"): the records of the first are lost without an error, in a committed Kafka
transaction as well. It happens with a topic that has just been created, and with a new producer while leaders move.
KAFKA-15591 closes it for partitions that were never written to, from Kafka 4.5 on.

So nothing follows the first record before Kafka has it. From then on, the broker refuses what is out of order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from confluent_kafka import Producer

from cdc.contract.partition import partition_of

_KNOWN_FOR_S: Final = 3_600.0
"""Brokers forget a producer that was silent in a partition for a day (``producer.id.expiration.ms``). Far below that,
and long enough that waiting for first records costs nothing."""
_METADATA_TIMEOUT_S: Final = 2.5

_partition_of = lru_cache(maxsize=4_096)(partition_of)
"""A topic with few keys may never fill all its partitions, so its keys are asked for again and again."""


class FirstRecords:
    """Knows in which partitions Kafka has a record of this producer.

    Attributes:
        complete: topics all of whose partitions have one: no need to ask for these.
        never_complete: topics that are asked for each time, because their records take another way.
    """

    __slots__ = ("_arrived", "_clock", "_counts", "_producer", "_since", "_under_way", "complete", "never_complete")

    def __init__(self, producer: Producer, clock: Callable[[], float] = time.monotonic) -> None:
        self._producer = producer
        self._clock = clock
        self._since = clock()
        self._counts: dict[str, int] = {}
        self._arrived: set[tuple[str, int]] = set()
        self._under_way: set[tuple[str, int]] = set()
        self.complete: set[str] = set()
        self.never_complete: set[str] = set()

    def must_wait(self, topic: str, key: bytes, partition: int = -1) -> bool:
        """Ask before a record is sent: does it have to wait until Kafka has all that was sent before?

        Call ``arrived`` when that is so; the record may then be sent. Without a wait, it counts as sent.

        Args:
            topic, key: of the record.
            partition: -1 for the partition that the key belongs to.

        Raises:
            KafkaException: no broker says how many partitions the topic has.
        """
        count = self._counts.get(topic) or self._count(topic)
        if not count:
            return False  # there is no such topic: sending says so
        place = topic, partition if partition >= 0 else _partition_of(key, count)
        if place in self._arrived:
            return False
        if place in self._under_way:
            return True
        self._under_way.add(place)
        return False

    def partition(self, topic: str, text: bytes) -> int:
        """Returns the partition that a key of these bytes would belong to; -1 if there is no such topic.

        Raises:
            KafkaException: no broker says how many partitions the topic has.
        """
        count = self._counts.get(topic) or self._count(topic)
        return partition_of(text, count) if count else -1

    def arrived(self) -> None:
        """Take note that Kafka has every record sent so far."""
        if not self._under_way:
            return
        self._arrived |= self._under_way
        for topic in {topic for topic, _ in self._under_way} - self.never_complete:
            if all((topic, number) in self._arrived for number in range(self._counts[topic])):
                self.complete.add(topic)
        self._under_way.clear()

    def forget(self) -> None:
        """Begin anew: after records that did not arrive."""
        for known in (self._counts, self._arrived, self._under_way, self.complete):
            known.clear()
        self._since = self._clock()

    def refresh(self) -> None:
        """Begin anew if that was long ago: brokers may have forgotten the producer. Call it now and then."""
        if self._clock() - self._since > _KNOWN_FOR_S:
            self.forget()

    def _count(self, topic: str) -> int:
        found = self._producer.list_topics(topic, _METADATA_TIMEOUT_S).topics[topic]
        if found.error is None:
            self._counts[topic] = len(found.partitions)
        return len(found.partitions)
