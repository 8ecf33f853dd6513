"""Pins where a topic's partitions begin and end, so that every query of a job sees the same records."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from cdc.base.errors import CdcError
from cdc.contract.jobspec.deployment import KafkaSettings
from cdc.kafka.brokers import BrokerAdmin
from cdc.spark.errors import NotCaughtUp, TopicChanged, TopicUnreadable
from cdc.spark.kafka_options import client_options

_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.02
_MESSAGES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of a topic's committed records.

    Attributes:
        topic_id: Kafka's id of the topic. A recreated topic gets a new one, and offsets are valid for one topic only.
        starts: the first offset of each partition.
        ends: the last stable offset of each partition: the one after its last committed record.
    """

    topic: str
    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """True if the range holds no offsets."""
        return self.starts == self.ends

    def after(self, starts: tuple[int, ...]) -> Extent:
        """Returns the part of the range from ``starts`` on."""
        return replace(self, starts=tuple(map(max, self.starts, starts)))


class Brokers:
    """The driver's connection to the Kafka cluster.

    Raises:
        TopicUnreadable: from every method, if Kafka does not answer or a topic does not exist.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._options = client_options(kafka)
        self._address = kafka.options["bootstrap.servers"]
        self._admin = BrokerAdmin(self._options)
        self._committed = self._consumer()

    def close(self) -> None:
        """Closes the connections."""
        self._committed.close()

    def extent(self, topic: str, timeout_s: float = _TIMEOUT_S) -> Extent:
        """Returns the range of the topic now, which contains everything that was committed before this call.

        A commit's markers reach the partitions one by one after it is decided, so the last stable offset may lag. This
        method notes the high watermark, waits until the last stable offset has reached it, and then pins that.

        Raises:
            NotCaughtUp: a Kafka transaction stays open for longer than ``timeout_s``.
        """
        # Ask for the id first: if refuse_another finds the same one later, all offsets belong to one topic.
        topic_id = self.topic_ids([topic])[topic]
        partitions = range(self._partition_count(topic))
        highs = self._high_watermarks(topic, partitions)
        deadline = time.monotonic() + timeout_s
        extents = []
        for each in partitions:
            low, end = self._watermarks(topic, each)
            while end < highs[each]:
                if time.monotonic() > deadline:
                    raise NotCaughtUp(
                        f"topic {topic}, partition {each}: a Kafka transaction has been open since offset {end}",
                        remedy="check with cdc status whether the bridge hangs, then try again",
                    )
                time.sleep(_PAUSE_S)
                low, end = self._watermarks(topic, each)
            extents.append((low, end))
        return Extent(topic, topic_id, tuple(low for low, _ in extents), tuple(end for _, end in extents))

    def settings(self, topic: str) -> Mapping[str, str]:
        """Returns the topic's configuration."""
        return self.settings_of([topic])[topic]

    def settings_of(self, topics: Collection[str]) -> dict[str, Mapping[str, str]]:
        """Returns the configuration of several topics."""
        found: dict[str, Mapping[str, str]] = {}
        resources = [ConfigResource(ResourceType.TOPIC, each) for each in topics]
        for resource, future in self._admin.describe_configs(resources, request_timeout=_TIMEOUT_S).items():
            try:
                told = future.result(timeout=_TIMEOUT_S)
            except KafkaException as error:
                raise self._unreadable(resource.name, error) from error
            found[resource.name] = {name: entry.value for name, entry in told.items()}
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Returns Kafka's ids of the topics."""
        found = {}
        for topic, future in self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=_TIMEOUT_S
        ).items():
            try:
                found[topic] = str(future.result(timeout=_TIMEOUT_S).topic_id)
            except KafkaException as error:
                raise self._unreadable(topic, error) from error
        return found

    def refuse_another(self, *extents: Extent, remedy: str = "start again") -> None:
        """Checks that the topics are still the same as when their extents were pinned.

        Raises:
            TopicChanged: a topic was recreated, so earlier and later offsets do not belong together.
        """
        found = self.topic_ids([each.topic for each in extents])
        if anew := sorted(each.topic for each in extents if found[each.topic] != each.topic_id):
            raise TopicChanged(f"topic {', '.join(anew)} was deleted and recreated while it was read", remedy=remedy)

    def read_all(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Returns key and value of every committed record of a small topic with one partition."""
        return self.read_from(topic, 0)[0]

    def read_from(self, topic: str, start: int) -> tuple[list[tuple[bytes | None, bytes | None]], int]:
        """Returns what ``read_all`` does from an offset on, and the offset to go on from."""
        extent = self.extent(topic).after((start,))
        records: list[tuple[bytes | None, bytes | None]] = []
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(topic, 0, extent.starts[0])])
            deadline = time.monotonic() + _TIMEOUT_S
            while (position := consumer.position([TopicPartition(topic, 0)])[0].offset) < extent.ends[0]:
                if extent.starts[0] >= extent.ends[0]:
                    break
                if time.monotonic() > deadline:
                    raise TopicUnreadable(
                        f"topic {topic}: no record came from offset {position} within {_TIMEOUT_S:.0f} s",
                        remedy=f"check the brokers at {self._address}, then try again",
                    )
                for message in waiting(consumer, 0.2):
                    if message.error() is None:
                        records.append((message.key(), message.value()))
                        deadline = time.monotonic() + _TIMEOUT_S
        except KafkaException as error:
            raise self._unreadable(topic, error) from error
        finally:
            consumer.close()
        return records, max(extent.starts[0], extent.ends[0])

    def _high_watermarks(self, topic: str, partitions: Iterable[int]) -> list[int]:
        """Returns high watermarks that no former leader has told (``cdc.kafka.leaders``), unlike a consumer's."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
        try:
            found = self._admin.offsets([(topic, each) for each in partitions], latest, timeout_s=_TIMEOUT_S)
        except CdcError as error:
            raise TopicUnreadable(f"topic {topic} at {self._address}: {error.message}", remedy=error.remedy) from error
        highs: list[int] = []
        for _, answer in sorted(found.items()):
            if isinstance(answer, KafkaError):
                raise self._unreadable(topic, KafkaException(answer))
            highs.append(answer)
        return highs

    def _partition_count(self, topic: str) -> int:
        try:
            metadata = self._committed.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise self._unreadable(topic, error) from error
        if metadata.error is not None or not metadata.partitions:
            raise self._missing(topic)
        return len(metadata.partitions)

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Returns the first offset and the last stable one."""
        try:
            low, end = self._committed.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._unreadable(topic, error) from error
        return low, end

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                **self._options,
                "group.id": "cdc-spark-driver",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": False,
            }
        )

    def _unreadable(self, topic: str, error: KafkaException) -> TopicUnreadable:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return self._missing(topic)
        return TopicUnreadable(
            f"topic {topic} at {self._address}: {error.args[0].str()}", remedy="check whether the brokers are reachable"
        )

    def _missing(self, topic: str) -> TopicUnreadable:
        return TopicUnreadable(
            f"there is no topic {topic} at {self._address}", remedy="start the bridge with cdc run: it creates topics"
        )


def waiting(consumer: Consumer, timeout_s: float) -> list[Message]:
    """Returns the messages that have arrived, or waits for the first ones; returns none after ``timeout_s``."""
    # With a timeout, consume() would wait until it has as many messages as it may return.
    first: list[Message] = consumer.consume(1, timeout_s)
    return [*first, *consumer.consume(_MESSAGES, 0)] if first else []


def offsets_json(offsets: Mapping[str, Sequence[int]]) -> str:
    """Writes offsets (one per partition, by topic) as Spark's connector takes them."""
    return json.dumps({topic: dict(enumerate(each)) for topic, each in offsets.items()})
