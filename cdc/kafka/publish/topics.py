"""Creates missing topics, and compares existing ones with the configuration.

Two differences stop the bridge. With a cleanup policy other than ``compact``, Kafka would delete state. With another
partition count, a key would lie in two partitions, and compaction would never join them. Every other difference is a
warning with the command that corrects it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata, ConfigResource, NewTopic, OffsetSpec, ResourceType

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.config import TopicsConfig
from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.contract.naming import collisions
from cdc.kafka.acls import BRIDGE_ON_TOPICS, Acl
from cdc.kafka.brokers import BrokerAdmin

COMPACTION_LAG = "min.compaction.lag.ms"
TIMEOUT_S = 15.0
_LEADERS_TIMEOUT_S = 60.0
"""A broker shows no topic of a request until it has created the files of all of them, which may be hundreds."""
_METADATA_POLL_S = 0.02
_FATAL = {"cleanup.policy", "partitions"}
_WEEK_MS = 604_800_000
_RECORDS_PER_REQUEST = 5_000
"""Half of a controller's limit: 10,000 metadata records in a request, one for each topic, partition and setting."""
_IMPOSSIBLE = {KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION}


@dataclass(frozen=True, slots=True)
class TopicSpecification:
    """A topic as it should be; ``settings`` are its topic-level configuration entries."""

    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drift:
    """A setting of an existing topic that differs from the specification."""

    topic: str
    setting: str
    wanted: str
    found: str

    @property
    def is_fatal(self) -> bool:
        """Whether the difference stops the bridge."""
        return self.setting in _FATAL

    @property
    def remedy(self) -> str:
        """What to do about the difference: a command to copy, or a change of the configuration."""
        if self.setting == "partitions":
            return (
                f"set topics.partitions to {self.found}, or give the table a new topic name under topics.names: "
                "a topic's partition count must never change, or a key lies in two partitions"
            )
        return (
            f"kafka-configs.sh --bootstrap-server … --alter --entity-type topics --entity-name {self.topic} "
            f"--add-config {self.setting}={self.wanted}"
        )


class TopicAdmin:
    """Creates and inspects topics.

    Args:
        admin: asks the brokers.
    """

    def __init__(self, admin: BrokerAdmin) -> None:
        self._admin = admin

    def partitions(self) -> dict[str, int]:
        """Returns the partition count of every topic that we may see.

        Raises:
            TopicRefused: the brokers refuse the connection.
            TopicUnavailable: no broker answers.
        """
        return {name: len(topic.partitions) for name, topic in self._metadata().topics.items()}

    def create_missing(self, specifications: Iterable[TopicSpecification]) -> list[str]:
        """Create the topics that do not exist; returns their names.

        Raises:
            TopicRefused: we may not create a topic, the cluster cannot hold it, or its name collides with another.
        """
        existing = self.partitions()
        missing = [each for each in specifications if each.name not in existing]
        if not missing:
            return []
        for topic, other in collisions([each.name for each in missing], [*existing, *(each.name for each in missing)]):
            raise collision(topic, other)
        for batch in batches(missing):
            self._create(batch)
            self._wait_for_leaders(batch)
        return [each.name for each in missing]

    def _create(self, specifications: Sequence[TopicSpecification]) -> None:
        topics = [
            NewTopic(
                each.name,
                num_partitions=each.partitions,
                replication_factor=each.replication_factor,
                config=dict(each.settings),
            )
            for each in specifications
        ]
        for name, future in self._admin.create_topics(topics, operation_timeout=TIMEOUT_S).items():
            try:
                future.result(timeout=2 * TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process may have created it
                    raise self._translate("create", name, error.args[0]) from error

    def _wait_for_leaders(self, specifications: Iterable[TopicSpecification]) -> None:
        """Wait until all brokers know the new topics: the controller learns of a topic a moment before they do.

        A broker says that it leads a partition before it does. So the leaders are asked as well: a producer's first
        request would be refused for a moment, and not every producer keeps its order then (see ``first_records``).
        """
        wanted = {each.name: each.partitions for each in specifications}
        asked = time.monotonic()
        deadline = asked + _LEADERS_TIMEOUT_S
        while True:
            topics = self._metadata().topics
            led = {
                name
                for name, partitions in wanted.items()
                if name in topics
                and len(topics[name].partitions) == partitions
                and all(each.leader >= 0 for each in topics[name].partitions.values())
            }
            if led == wanted.keys():
                break
            now = time.monotonic()
            if now > deadline:
                lacking = sorted(wanted.keys() - led)
                raise TopicUnavailable(
                    f"new topics without a leader after a minute: {len(lacking)}, {lacking[0]!r} among them",
                    remedy=BROKERS_AWAY,
                )
            time.sleep(max(_METADATA_POLL_S, now - asked))  # as long as the answer took: spare brokers that are busy
            asked = time.monotonic()
        places = [(name, number) for name, partitions in wanted.items() for number in range(partitions)]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
        answers = self._admin.offsets(places, latest, timeout_s=TIMEOUT_S)
        for (name, number), found in answers.items():
            if isinstance(found, KafkaError):
                raise TopicUnavailable(
                    f"partition {number} of the new topic {name!r} has no leader: {found.str()}", remedy=BROKERS_AWAY
                )

    def _metadata(self) -> ClusterMetadata:
        return self._admin.metadata(timeout_s=TIMEOUT_S)

    def drift(self, specifications: Iterable[TopicSpecification]) -> list[Drift]:
        """Returns the differences between existing topics and their specifications; ignores missing topics."""
        existing = self.partitions()
        wanted = {each.name: each for each in specifications if each.name in existing}
        if not wanted:
            return []
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
        drifts = []
        for resource, future in self._admin.describe_configs(resources, request_timeout=TIMEOUT_S).items():
            specification = wanted[resource.name]
            try:
                entries = future.result(timeout=2 * TIMEOUT_S)
            except KafkaException as error:
                raise self._translate("describe", resource.name, error.args[0]) from error
            found = {name: str(entry.value) for name, entry in entries.items()}
            found["partitions"] = str(existing[specification.name])
            asked = {**specification.settings, "partitions": str(specification.partitions)}
            drifts += [
                Drift(specification.name, setting, value, found.get(setting, "?"))
                for setting, value in asked.items()
                if not _same(found.get(setting, "?"), value)
            ]
        return drifts

    def _translate(self, what: str, topic: str, error: KafkaError) -> CdcError:
        if error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
            return TopicRefused(
                f"not authorised to {what} topic {topic!r}",
                remedy=Acl("topic", topic, BRIDGE_ON_TOPICS).remedy(self._admin.options),
            )
        if error.code() in _IMPOSSIBLE:
            return TopicRefused(
                f"Kafka refuses to {what} topic {topic!r}: {error.str()}",
                remedy="change the `topics` section of the configuration to what the cluster allows",
            )
        return TopicUnavailable(f"cannot {what} topic {topic!r}: {error.str()}", remedy="check that the brokers are up")


def batches(specifications: Iterable[TopicSpecification]) -> Iterator[list[TopicSpecification]]:
    """Split topics into batches for one request each; a broker refuses more as an excessively large batch."""
    batch: list[TopicSpecification] = []
    records = 0
    for each in specifications:
        needs = 1 + each.partitions + len(each.settings)
        if batch and records + needs > _RECORDS_PER_REQUEST:
            yield batch
            batch, records = [], 0
        batch.append(each)
        records += needs
    if batch:
        yield batch


def collision(topic: str, other: str) -> TopicRefused:
    """The error for a topic whose name Kafka cannot tell from another one's."""
    return TopicRefused(
        f"cannot create topic {topic!r} beside {other!r}: Kafka treats '.' and '_' in topic names as equal",
        remedy="give one of the two tables another topic under topics.names (for a new table, that costs nothing); "
        "or choose another `name`, if the other topic does not belong to this bridge",
    )


def state_settings(topics: TopicsConfig) -> dict[str, str]:
    """Returns the topic-level settings of a state topic, from ``TopicsConfig``."""
    return {
        "cleanup.policy": "compact",
        COMPACTION_LAG: str(topics.min_compaction_lag_ms),
        "max.compaction.lag.ms": str(topics.max_compaction_lag_ms),
        "delete.retention.ms": str(topics.delete_retention_ms),
        "segment.ms": str(topics.segment_ms),
        "min.cleanable.dirty.ratio": str(topics.min_cleanable_dirty_ratio),
        "min.insync.replicas": str(topics.min_insync_replicas),
        "max.message.bytes": str(state_message_bytes(topics)),
    }


def state_message_bytes(topics: TopicsConfig) -> int:
    """The largest record of a state topic; an envelope holds the old row as well, as a history does."""
    return topics.max_message_bytes if topics.envelope == "plain" else history_message_bytes(topics)


def history_settings(topics: TopicsConfig) -> dict[str, str]:
    """Returns the topic-level settings of a history topic.

    Kafka deletes whole segments, so a segment spans at most a tenth of the retention.
    """
    retention_ms = topics.history_retention_ms
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "retention.bytes": "-1",
        "segment.ms": str(_WEEK_MS if retention_ms < 0 else min(_WEEK_MS, retention_ms // 10)),
        "min.insync.replicas": str(topics.min_insync_replicas),
        "max.message.bytes": str(history_message_bytes(topics)),
    }


def history_message_bytes(topics: TopicsConfig) -> int:
    """The largest record of a history: the rows before and after a change, and 64 KiB for what surrounds them."""
    return 2 * topics.max_message_bytes + 65_536


def event_settings(topics: TopicsConfig) -> dict[str, str]:
    """Returns the topic-level settings of a topic of events. How long events stay is the brokers' default, or yours."""
    return {
        "cleanup.policy": "delete",
        "min.insync.replicas": str(topics.min_insync_replicas),
        "max.message.bytes": str(topics.max_message_bytes),
    }


def bookkeeping_settings(topics: TopicsConfig) -> dict[str, str]:
    """Returns the topic-level settings of ``__progress`` and ``__schemas``.

    Segments are short and cleaned early. A busy bridge writes hundreds of progress records a second, every start reads
    them all, and Kafka never compacts the segment that is being written.
    """
    return {
        "cleanup.policy": "compact",
        "segment.ms": "60000",
        "min.cleanable.dirty.ratio": "0.1",
        "min.insync.replicas": str(topics.min_insync_replicas),
    }


def _same(found: str, wanted: str) -> bool:
    try:
        return float(found) == float(wanted)
    except ValueError:
        return found == wanted
