"""Where a topic's partitions begin and end, asked once, so that every look of a job sees the same records."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from cdc.contract.jobspec.deployment import KafkaSettings
from cdc.spark.errors import NotCaughtUp, TopicChanged, TopicUnreadable
from cdc.spark.kafka_options import client_options

_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.02
_MESSAGES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Extent:
    """A topic's committed records.

    Attributes:
        topic_id: Kafka's own, new with every topic of the same name: offsets are good for one topic only.
        starts: by partition the first offset.
        ends: by partition the one behind the last (last stable offset).
    """

    topic: str
    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies in it."""
        return self.starts == self.ends

    def after(self, starts: tuple[int, ...]) -> Extent:
        """Only what lies at or behind ``starts``."""
        return replace(self, starts=tuple(map(max, self.starts, starts)))


class Brokers:
    """A client of the cluster for the job's driver.

    Raises:
        TopicUnreadable: from every method, when Kafka does not answer or a topic is not there.
    """

    def __init__(self, kafka: KafkaSettings) -> None:
        self._options = client_options(kafka)
        self._address = kafka.options["bootstrap.servers"]
        self._admin = AdminClient(self._options)
        self._uncommitted = self._consumer("read_uncommitted")
        self._committed = self._consumer("read_committed")

    def close(self) -> None:
        """Free the connections."""
        self._uncommitted.close()
        self._committed.close()

    def extent(self, topic: str, timeout_s: float = _TIMEOUT_S) -> Extent:
        """The topic as it is now: everything that was committed before this call lies inside.

        A commit's markers reach partitions one by one after it is decided, so the last stable offset may trail: wait
        until it has passed the high watermark of this moment, then pin it.

        Raises:
            NotCaughtUp: somebody's Kafka transaction stays open for longer than ``timeout_s``.
        """
        # Asked first: when the id is the same afterwards, all of this is of one topic (refuse_another).
        topic_id = self.topic_ids([topic])[topic]
        partitions = range(self._partition_count(topic))
        highs = [self._watermarks(self._uncommitted, topic, each)[1] for each in partitions]
        deadline = time.monotonic() + timeout_s
        extents = []
        for each in partitions:
            low, end = self._watermarks(self._committed, topic, each)
            while end < highs[each]:
                if time.monotonic() > deadline:
                    raise NotCaughtUp(
                        f"topic {topic}, partition {each}: a Kafka transaction is open since offset {end}",
                        remedy="see whether the bridge hangs (cdc status), then try again",
                    )
                time.sleep(_PAUSE_S)
                low, end = self._watermarks(self._committed, topic, each)
            extents.append((low, end))
        return Extent(topic, topic_id, tuple(low for low, _ in extents), tuple(end for _, end in extents))

    def settings(self, topic: str) -> Mapping[str, str]:
        """The topic's configuration."""
        return self.settings_of([topic])[topic]

    def settings_of(self, topics: Collection[str]) -> dict[str, Mapping[str, str]]:
        """The configuration of several topics."""
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
        """Kafka's own ids."""
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
        """See that topics are those that they were when their extents were asked.

        Raises:
            TopicChanged: one was made anew: offsets that were asked before and after are not of one topic.
        """
        found = self.topic_ids([each.topic for each in extents])
        if anew := sorted(each.topic for each in extents if found[each.topic] != each.topic_id):
            raise TopicChanged(f"topic {', '.join(anew)} was deleted and made anew while it was read", remedy=remedy)

    def read_all(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Every committed record of a small topic of one partition, as key and value."""
        extent = self.extent(topic)
        records: list[tuple[bytes | None, bytes | None]] = []
        consumer = self._consumer("read_committed")
        try:
            consumer.assign([TopicPartition(topic, 0, extent.starts[0])])
            deadline = time.monotonic() + _TIMEOUT_S
            while (position := consumer.position([TopicPartition(topic, 0)])[0].offset) < extent.ends[0]:
                if extent.starts[0] >= extent.ends[0]:
                    break
                if time.monotonic() > deadline:
                    raise TopicUnreadable(
                        f"topic {topic}: no record came from offset {position} in {_TIMEOUT_S:.0f} s",
                        remedy=f"see whether the brokers at {self._address} are well, then try again",
                    )
                for message in waiting(consumer, 0.2):
                    if message.error() is None:
                        records.append((message.key(), message.value()))
                        deadline = time.monotonic() + _TIMEOUT_S
        except KafkaException as error:
            raise self._unreadable(topic, error) from error
        finally:
            consumer.close()
        return records

    def _partition_count(self, topic: str) -> int:
        try:
            metadata = self._committed.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise self._unreadable(topic, error) from error
        if metadata.error is not None or not metadata.partitions:
            raise self._missing(topic)
        return len(metadata.partitions)

    def _watermarks(self, consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._unreadable(topic, error) from error
        return low, high

    def _consumer(self, isolation_level: str) -> Consumer:
        return Consumer(
            {
                **self._options,
                "group.id": "cdc-spark-driver",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation_level,
                "enable.partition.eof": False,
            }
        )

    def _unreadable(self, topic: str, error: KafkaException) -> TopicUnreadable:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return self._missing(topic)
        return TopicUnreadable(
            f"topic {topic} at {self._address}: {error.args[0].str()}", remedy="see whether the brokers are reachable"
        )

    def _missing(self, topic: str) -> TopicUnreadable:
        return TopicUnreadable(
            f"there is no topic {topic} at {self._address}", remedy="start the bridge once (cdc run): it makes it"
        )


def waiting(consumer: Consumer, timeout_s: float) -> list[Message]:
    """The messages that are there, or the first that come; none after ``timeout_s``."""
    # With a timeout, consume() waits until all that it may bring are there.
    first: list[Message] = consumer.consume(1, timeout_s)
    return [*first, *consumer.consume(_MESSAGES, 0)] if first else []


def offsets_json(offsets: Mapping[str, Sequence[int]]) -> str:
    """By topic one offset for each partition, as Spark's connector takes them."""
    return json.dumps({topic: dict(enumerate(each)) for topic, each in offsets.items()})
