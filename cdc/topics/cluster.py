"""Asks the brokers about topics: settings, leaders, offsets, sizes, and the settings of the cleaner."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from cdc.base.errors import CdcError, TopicRefused
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.client import REQUEST_TIMEOUT_S, translated
from cdc.kafka.wire import BrokerWire
from cdc.topics.settings import CleanerSettings, cleaner_settings

_READS: Final = ("Read", "Describe", "DescribeConfigs")


class PartitionPlace(NamedTuple):
    """A partition and its brokers.

    Attributes:
        topic, partition: which it is.
        leader: the leader's broker id.
        replicas: the broker ids of all replicas.
    """

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]


class Ends(NamedTuple):
    """The offsets at which a partition begins and ends."""

    start: int
    last_stable: int
    high_watermark: int


class Cluster:
    """Asks the brokers. A context manager, which closes its connections at the end.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.

    Raises:
        ConfigError: librdkafka does not know an option or accept its value.
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
        """Returns partitions by topic. If no topic is named, these are all but Kafka's own.

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
                    f"topic {name!r} does not exist", remedy="cdc topics inspect without names lists all topics"
                )
            if topic.error is not None:
                raise translated(topic.error, name, self.options, needs=_READS)
            found[name] = [
                PartitionPlace(name, number, each.leader, tuple(each.replicas))
                for number, each in sorted(topic.partitions.items())
            ]
        return found

    def settings(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Returns settings by topic, as Kafka writes them.

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
        """Changes settings of a topic: all of them, or none if Kafka refuses one.

        Raises:
            TopicRefused: we may not change them, or a value is not allowed.
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
        """Returns the cleaner's settings on one broker, because all should have the same. If we may not ask, returns
        Kafka's defaults."""
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
        """Returns the offsets at which partitions begin and end now.

        Raises:
            TopicRefused: we may not see a topic.
            TopicUnavailable: no broker answers.
        """
        partitions = [(each.topic, each.partition) for each in places]
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
        earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client gives it no types
        asked = (
            (earliest, IsolationLevel.READ_UNCOMMITTED),
            # Asked before the high watermark, so that it is never greater: offsets between them belong to open
            # Kafka transactions.
            (latest, IsolationLevel.READ_COMMITTED),
            (latest, IsolationLevel.READ_UNCOMMITTED),
        )
        answers = [self._offsets(partitions, spec, isolation) for spec, isolation in asked]
        return {each: Ends(*(answer[each] for answer in answers)) for each in partitions}

    def groups(self) -> list[str]:
        """Returns the consumer groups that we may see.

        Raises:
            TopicUnavailable: no broker answers.
        """
        try:
            found = self._admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result()
        except KafkaException as error:
            raise translated(error.args[0], None, self.options) from error
        return sorted(each.group_id for each in found.valid)

    def committed(self, asked: ConsumerGroupTopicPartitions) -> list[TopicPartition]:
        """Returns a group's offsets.

        Raises:
            KafkaException: the group is gone, or we may not see it.
        """
        futures = self._admin.list_consumer_group_offsets([asked], request_timeout=REQUEST_TIMEOUT_S)
        found: list[TopicPartition] = futures[asked.group_id].result().topic_partitions
        return found

    def brokers(self) -> list[int]:
        """Returns the ids of all brokers."""
        return sorted(self._brokers)

    def wire(self, broker: int) -> BrokerWire:
        """Returns our own connection to a broker, and opens it if necessary.

        Raises:
            TopicRefused: the broker refuses us, or it is down (-1: the partition has no leader).
            TopicUnavailable: the broker does not answer.
        """
        if broker not in self._wires:
            if broker not in self._brokers:
                raise TopicRefused(
                    f"a partition is led by broker {broker}, which is down", remedy="start it, or elect another leader"
                )
            self._wires[broker] = self._closing.enter_context(BrokerWire(*self._brokers[broker], self.options))
        return self._wires[broker]

    def sizes(self, places: Sequence[PartitionPlace]) -> dict[tuple[str, int], int]:
        """Returns bytes on the leaders' disks by partition. Partitions are missing where we may not ask."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for each in places:
            by_leader.setdefault(each.leader, {}).setdefault(each.topic, []).append(each.partition)
        found: dict[tuple[str, int], int] = {}
        for leader, topics in by_leader.items():
            try:
                found.update(self.wire(leader).log_sizes(topics))
            except TopicRefused:
                continue  # sizes need Describe on the cluster, which few readers have
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
