"""The double of confluent_kafka's AdminClient.

Its futures are done when a call returns: the call itself waits for the brokers. What a program sees is the same, except
that it waits a little earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_END,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    DeletedRecords,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from tests.world.kafka import DEFAULTS, BrokerTopic, Session
from tests.world.kafka_log import PartitionLog
from tests.world.kafka_metadata import NODE, asked_metadata, cluster_at

Asked = TypeVar("Asked")
_TIMEOUT_S = 60.0


class AdminClient:
    """confluent_kafka's AdminClient. It ends when it is freed."""

    def __init__(self, conf: Mapping[str, Any], **_logger: object) -> None:
        self._session = Session(cluster_at(conf), conf.get("error_cb"))
        self._cluster = self._session.cluster

    def __del__(self) -> None:
        self._session.end()

    def __len__(self) -> int:
        return len(self._session.events)

    def poll(self, timeout: float = -1) -> int:
        """Run the callbacks that wait."""
        if not self._session.events and timeout:
            self._cluster.wait(lambda: bool(self._session.events), timeout)
        return self._session.serve()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Ask a broker for metadata."""
        return asked_metadata(self._session, topic, timeout)

    def create_topics(self, new_topics: Sequence[NewTopic], **options: Any) -> dict[str, Future[None]]:
        """Create topics."""

        def create(new: NewTopic) -> None:
            if new.replication_factor > 1:
                raise _error(KafkaError.INVALID_REPLICATION_FACTOR, "There is one broker")
            refusal = self._cluster.create(new.topic, new.num_partitions, new.config)
            if refusal is not None:
                raise KafkaException(refusal)

        return {each.topic: answer for each, answer in self._answers(new_topics, create, options)}

    def delete_topics(self, topics: Sequence[str], **options: Any) -> dict[str, Future[None]]:
        """Delete topics."""

        def delete(name: str) -> None:
            self._topic(name)
            self._cluster.delete(name)

        return dict(self._answers(topics, delete, options))

    def create_partitions(self, new_partitions: Sequence[NewPartitions], **options: Any) -> dict[str, Future[None]]:
        """Add partitions."""

        def add(new: NewPartitions) -> None:
            if new.new_total_count <= len(self._topic(new.topic).partitions):
                raise _error(KafkaError.INVALID_PARTITIONS, "The topic has as many partitions already")
            self._cluster.add_partitions(new.topic, new.new_total_count)

        return {each.topic: answer for each, answer in self._answers(new_partitions, add, options)}

    def describe_topics(self, topics: TopicCollection, **options: Any) -> dict[str, Future[TopicDescription]]:
        """Describe topics, with their ids."""
        node = Node(NODE, "kafka.world", 9092)

        def describe(name: str) -> TopicDescription:
            topic = self._topic(name)
            partitions = [TopicPartitionInfo(log.number, node, [node], [node]) for log in topic.partitions]
            return TopicDescription(name, topic.topic_id, False, partitions)

        return dict(self._answers(topics.topic_names, describe, options))

    def describe_configs(
        self, resources: Sequence[ConfigResource], **options: Any
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Tell all settings of topics."""

        def describe(resource: ConfigResource) -> dict[str, ConfigEntry]:
            topic = self._topic(resource.name)
            return {name: ConfigEntry(name, topic.setting(name)) for name in DEFAULTS}

        return dict(self._answers(resources, describe, options))

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], **options: Any
    ) -> dict[ConfigResource, Future[None]]:
        """Change settings of topics."""

        def alter(resource: ConfigResource) -> None:
            topic = self._topic(resource.name)
            for entry in resource.incremental_configs:
                if entry.name not in DEFAULTS:
                    raise _error(KafkaError.INVALID_CONFIG, f"Unknown topic config name: {entry.name}")
                if entry.incremental_operation == AlterConfigOpType.SET:
                    topic.settings[entry.name] = str(entry.value)
                else:
                    topic.settings.pop(entry.name, None)

        return dict(self._answers(resources, alter, options))

    def list_consumer_group_offsets(
        self, groups: Sequence[ConsumerGroupTopicPartitions], **options: Any
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """The offsets of groups, which have none: no program of the world stores any."""
        return dict(self._answers([each.group_id for each in groups], ConsumerGroupTopicPartitions, options))

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        **options: Any,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Tell the first or the next offset of partitions; of committed records, that is the last stable offset."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client gives it no types

        def look(place: TopicPartition) -> ListOffsetsResultInfo:
            log = self._log(place)
            if topic_partition_offsets[place] is earliest:
                return ListOffsetsResultInfo(log.low, -1, 0)
            return ListOffsetsResultInfo(
                log.stable if isolation_level == IsolationLevel.READ_COMMITTED else log.end, -1, 0
            )

        # Who leads the partitions is looked up first, and that is what fails while connections are refused
        return dict(self._answers(topic_partition_offsets, look, {**options, "away": KafkaError._NOENT}))

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], **options: Any
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before an offset (KIP-107)."""

        def delete(place: TopicPartition) -> DeletedRecords:
            log = self._log(place)
            if "delete" not in self._topic(place.topic).setting("cleanup.policy"):
                raise _error(KafkaError.POLICY_VIOLATION, "The topic is only compacted")
            before = log.end if place.offset == OFFSET_END else place.offset
            if before > log.end or before < 0:
                raise _error(KafkaError.OFFSET_OUT_OF_RANGE, "There is no such offset")
            log.delete(before)
            return DeletedRecords(log.low)

        return dict(self._answers(topic_partition_offsets, delete, options))

    def _answers(
        self, asked: Iterable[Asked], answer: Callable[[Asked], Any], options: Mapping[str, Any]
    ) -> list[tuple[Asked, Future[Any]]]:
        """Send a request, wait for the answer, and return it as futures."""
        cluster, timeout_s = self._cluster, float(options.get("request_timeout", _TIMEOUT_S))
        cluster.turns.turn()
        answers = cluster.answers or cluster.wait(lambda: cluster.answers, timeout_s)
        found: list[tuple[Asked, Future[Any]]] = []
        for each in asked:
            future: Future[Any] = Future()
            try:
                if not answers:
                    code = options.get("away", KafkaError._TIMED_OUT) if cluster.is_away else KafkaError._TIMED_OUT
                    raise _error(code, "Failed while waiting for response from broker")
                future.set_result(answer(each))
            except KafkaException as error:
                future.set_exception(error)
            found.append((each, future))
        cluster.turns.turn()
        return found

    def _topic(self, name: str) -> BrokerTopic:
        if (topic := self._cluster.topic(name)) is None:
            raise _error(KafkaError.UNKNOWN_TOPIC_OR_PART, "This server does not host this topic-partition.")
        return topic

    def _log(self, place: TopicPartition) -> PartitionLog:
        if (log := self._cluster.log(place.topic, place.partition)) is None:
            raise _error(KafkaError._NOENT, "Failed to query partition leaders: no such partition")
        return log


def _error(code: int, text: str) -> KafkaException:
    return KafkaException(KafkaError(code, text))
