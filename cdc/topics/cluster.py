"""What the brokers say of topics: settings, leaders, offsets, sizes, and the settings of their cleaners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from cdc.base.errors import CdcError, TopicRefused
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.client import REQUEST_TIMEOUT_S, translated
from cdc.topics.settings import CleanerSettings, cleaner_settings
from cdc.topics.wire import BrokerWire

_READS: Final = ("Read", "Describe", "DescribeConfigs")


class PartitionPlace(NamedTuple):
    """A partition and where it is.

    Attributes:
        leader: broker id.
    """

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]


class Ends(NamedTuple):
    """Offsets of a partition."""

    start: int
    last_stable: int
    high_watermark: int


class Cluster:
    """Asks the brokers; a context manager that closes its connections.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self._admin = BrokerAdmin(options)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._wires: dict[int, BrokerWire] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def places(self, topics: Collection[str]) -> dict[str, list[PartitionPlace]]:
        """Partitions by topic; all topics but Kafka's own when none is named.

        Raises:
            TopicRefused: a topic does not exist, or we may not see it.
            TopicUnavailable: no broker answers, or a partition has no leader.
        """
        metadata = self._admin.metadata(timeout_s=REQUEST_TIMEOUT_S)
        self._brokers = {each.id: (str(each.host), each.port) for each in metadata.brokers.values()}
        wanted = topics or sorted(name for name in metadata.topics if not name.startswith("__"))
        found: dict[str, list[PartitionPlace]] = {}
        for name in wanted:
            topic = metadata.topics.get(name)
            if topic is None:
                raise TopicRefused(
                    f"topic {name!r} does not exist", remedy="cdc topics inspect without names lists all"
                )
            if topic.error is not None:
                raise translated(topic.error, name, self.options, needs=_READS)
            found[name] = [
                PartitionPlace(name, number, each.leader, tuple(each.replicas))
                for number, each in sorted(topic.partitions.items())
            ]
        return found

    def settings(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Settings by topic, as Kafka writes them.

        Raises:
            TopicRefused: we may not see them.
            TopicUnavailable: no broker answers.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        found: dict[str, dict[str, str]] = {}
        if not resources:
            return found
        for resource, future in self._admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                entries = future.result()
            except KafkaException as error:
                raise translated(error.args[0], resource.name, self.options, needs=_READS) from error
            found[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
        return found

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic, all or none.

        Raises:
            TopicRefused: we may not, or a value is not allowed.
            TopicUnavailable: no broker answers.
        """
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        try:
            self._admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION):
                raise TopicRefused(
                    f"Kafka refuses the settings of topic {topic!r}: {error.args[0].str()}", remedy="correct the value"
                ) from error
            raise translated(error.args[0], topic, self.options, needs=("AlterConfigs",)) from error

    def cleaner(self) -> CleanerSettings:
        """Of one broker, as they should be alike; Kafka's defaults where we may not ask."""
        broker = min(self._brokers)
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        try:
            entries = self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return CleanerSettings()
            raise translated(error.args[0], None, self.options) from error
        return cleaner_settings({name: str(entry.value) for name, entry in entries.items()})

    def ends(self, places: Sequence[PartitionPlace]) -> dict[tuple[str, int], Ends]:
        """Where partitions begin and end now.

        Raises:
            TopicRefused: we may not see a topic.
            TopicUnavailable: no broker answers.
        """
        partitions = [(each.topic, each.partition) for each in places]
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
        earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client gives it no types
        asked = (
            (earliest, IsolationLevel.READ_UNCOMMITTED),
            # Before the end: a Kafka transaction that begins in between must not look as if it ended.
            (latest, IsolationLevel.READ_COMMITTED),
            (latest, IsolationLevel.READ_UNCOMMITTED),
        )
        answers = [self._offsets(partitions, spec, isolation) for spec, isolation in asked]
        return {each: Ends(*(answer[each] for answer in answers)) for each in partitions}

    def groups(self) -> list[str]:
        """Consumer groups that we may see.

        Raises:
            TopicUnavailable: no broker answers.
        """
        try:
            found = self._admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
        except KafkaException as error:
            raise translated(error.args[0], None, self.options) from error
        return sorted(each.group_id for each in found.valid)

    def committed(self, asked: ConsumerGroupTopicPartitions) -> list[TopicPartition]:
        """A group's offsets.

        Raises:
            KafkaException: the group is gone, or we may not see it.
        """
        futures = self._admin.list_consumer_group_offsets([asked], request_timeout=REQUEST_TIMEOUT_S)
        found: list[TopicPartition] = futures[asked.group_id].result().topic_partitions
        return found

    def brokers(self) -> list[int]:
        """Their ids."""
        return sorted(self._brokers)

    def wire(self, broker: int) -> BrokerWire:
        """A connection of our own to a broker, opened once.

        Raises:
            TopicRefused: the broker will not let us in.
            TopicUnavailable: it does not answer, or there is no such broker (-1: a partition without leader).
        """
        if broker not in self._wires:
            if broker not in self._brokers:
                raise TopicRefused(
                    f"a partition is led by broker {broker}, which is down", remedy="start it, or elect a leader"
                )
            self._wires[broker] = self._closing.enter_context(BrokerWire(*self._brokers[broker], self.options))
        return self._wires[broker]

    def sizes(self, places: Sequence[PartitionPlace]) -> dict[tuple[str, int], int]:
        """Bytes on the leaders' disks by partition; none where we may not ask."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for each in places:
            by_leader.setdefault(each.leader, {}).setdefault(each.topic, []).append(each.partition)
        found: dict[tuple[str, int], int] = {}
        for leader, topics in by_leader.items():
            try:
                found.update(self.wire(leader).log_sizes(topics))
            except TopicRefused:
                continue  # it needs Describe on the cluster, which few readers have
        return found

    def _offsets(
        self, partitions: Sequence[tuple[str, int]], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        answers = self._admin.offsets(partitions, spec, timeout_s=REQUEST_TIMEOUT_S, isolation=isolation)
        for place, answer in answers.items():
            if isinstance(answer, KafkaError):
                failure: CdcError = translated(answer, place[0], self.options)
                raise failure
            found[place] = answer
        return found
