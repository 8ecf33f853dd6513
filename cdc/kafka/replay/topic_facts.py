"""Asks the brokers about topics: their ids, where they begin and end, and how long they keep records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType, TopicDescription

from cdc.contract.ports import Partition, TopicFacts
from cdc.kafka.acls import SINK_ON_TOPICS
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.client import REQUEST_TIMEOUT_S, translated

_MISSING: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_LAG, _RETENTION, _POLICY = "min.compaction.lag.ms", "delete.retention.ms", "cleanup.policy"


class TopicExtent(NamedTuple):
    """A topic's id, and the first offset and the high watermark of each partition."""

    topic_id: str
    low: tuple[int, ...]
    ends: tuple[int, ...]


def described_topics(
    admin: BrokerAdmin, topics: Collection[str], *, needs: Sequence[str] = ("Read",)
) -> dict[str, TopicDescription]:
    """Returns Kafka's descriptions of topics; leaves out topics that do not exist.

    Args:
        admin: asks the brokers.
        topics: their names.
        needs: the rights that the error for a refusal names.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not see a topic.
    """
    found: dict[str, TopicDescription] = {}
    if not topics:
        return found
    asked = admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S)
    for name, future in asked.items():
        try:
            found[name] = future.result()
        except KafkaException as error:
            if error.args[0].code() not in _MISSING:
                raise translated(error.args[0], name, admin.options, needs=needs) from error
    return found


def topic_extents(
    admin: BrokerAdmin, topics: Collection[str], *, needs: Sequence[str] = ("Read",)
) -> dict[str, TopicExtent]:
    """Returns id, beginning and end of topics; arguments and errors as for ``described_topics``."""
    described = described_topics(admin, topics, needs=needs)
    partitions = [(name, each.id) for name, topic in described.items() for each in topic.partitions]
    # The client's OffsetSpec has no type annotations.
    low = _offsets(admin, partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the client gives it no types
    ends = _offsets(admin, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the client gives it no types
    found: dict[str, TopicExtent] = {}
    for name, topic in described.items():
        places = sorted((name, each.id) for each in topic.partitions)
        if all(each in low and each in ends for each in places):
            found[name] = TopicExtent(
                str(topic.topic_id), tuple(low[each] for each in places), tuple(ends[each] for each in places)
            )
    return found


def topic_facts(admin: BrokerAdmin, topics: Collection[str]) -> dict[str, TopicFacts]:
    """Returns the brokers' facts about topics, now; arguments and errors as for ``described_topics``."""
    extents = topic_extents(admin, topics, needs=SINK_ON_TOPICS)
    found: dict[str, TopicFacts] = {}
    if not extents:
        return found
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in extents]
    for resource, future in admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            settings = future.result()
        except KafkaException as error:
            if error.args[0].code() in _MISSING:
                continue
            raise translated(error.args[0], resource.name, admin.options, needs=SINK_ON_TOPICS) from error
        lag_s, retention_s = (int(settings[name].value) / 1_000 for name in (_LAG, _RETENTION))
        found[resource.name] = TopicFacts(*extents[resource.name], lag_s, retention_s, settings[_POLICY].value)
    return found


def high_watermarks(admin: BrokerAdmin, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Ask the brokers for the high watermarks; records of open Kafka transactions lie below them, too.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: a topic is gone, or we may not see it.
    """
    return _ends(admin, partitions, IsolationLevel.READ_UNCOMMITTED)


def stable_ends(admin: BrokerAdmin, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Ask the brokers for the last stable offsets: up to there, reading waits for no Kafka transaction.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: a topic is gone, or we may not see it.
    """
    return _ends(admin, partitions, IsolationLevel.READ_COMMITTED)


def _ends(admin: BrokerAdmin, partitions: Collection[Partition], isolation: IsolationLevel) -> dict[Partition, int]:
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
    ends: dict[Partition, int] = {}
    for place, answer in admin.offsets(partitions, latest, timeout_s=REQUEST_TIMEOUT_S, isolation=isolation).items():
        if isinstance(answer, KafkaError):
            raise translated(answer, place[0], admin.options)
        ends[place] = answer
    return ends


def _offsets(admin: BrokerAdmin, partitions: Iterable[Partition], wanted: OffsetSpec) -> dict[Partition, int]:
    """Returns offsets by partition; leaves out those of a topic that is being deleted."""
    found: dict[Partition, int] = {}
    for place, answer in admin.offsets(partitions, wanted, timeout_s=REQUEST_TIMEOUT_S).items():
        if not isinstance(answer, KafkaError):
            found[place] = answer
        elif answer.code() not in _MISSING:
            raise translated(answer, place[0], admin.options)
    return found
