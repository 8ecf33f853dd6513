"""The topics of an application: created when missing, refused when their settings would lose its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc.base.config import TopicsConfig
from cdc.base.config.checks import topic_name
from cdc.base.errors import ConfigError, TopicRefused
from cdc.contract.ports import Partition
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification, history_settings, state_settings
from cdc.kafka.replay.bounded import partitions_of
from cdc.kafka.replay.client import TopicMissing

_POLICY: Final = "cleanup.policy"


def checked_name(topic: str) -> str:
    """Returns the name.

    Raises:
        ConfigError: Kafka does not allow the name.
    """
    try:
        return topic_name(topic)
    except ValueError as error:
        raise ConfigError(f"{topic!r} is not a topic name", remedy=str(error)) from error


def changelog_topic(app: str, store: str) -> str:
    """Returns ``{app}-{store}-changelog``.

    Raises:
        ConfigError: a part is empty, or Kafka does not allow the name.
    """
    if not app or not store:
        raise ConfigError(f"app {app!r} and store {store!r} both need a name", remedy="give each a name of its own")
    return checked_name(f"{app}-{store}-changelog")


def partitions_of_topic(admin: BrokerAdmin, topic: str) -> list[Partition]:
    """Returns the topic's partitions.

    Raises:
        TopicRefused: the topic does not exist, or we may not see it.
        TopicUnavailable: no broker answers.
    """
    try:
        return partitions_of(admin, topic)
    except TopicMissing as error:
        raise TopicRefused(error.message, remedy="correct the name, or start what writes the topic first") from error


def state_topic(options: Mapping[str, Any], topic: str, create: TopicsConfig | None) -> int:
    """Checks a compacted topic, or creates it. Returns the number of its partitions.

    Args:
        options: librdkafka settings.
        topic: the topic's name.
        create: how to create it when it is missing; with None, it must exist.

    Raises:
        ConfigError: Kafka does not allow the name.
        TopicRefused: the topic is missing, or its cleanup policy is not exactly ``compact``.
        TopicUnavailable: no broker answers.
    """
    settings = None if create is None else state_settings(create)
    return _topic(options, topic, create, settings, "compact")


def history_topic(options: Mapping[str, Any], topic: str, create: TopicsConfig | None) -> int:
    """Does what ``state_topic`` does, for a topic that keeps every record: its cleanup policy must be ``delete``."""
    settings = None if create is None else history_settings(create)
    return _topic(options, topic, create, settings, "delete")


def _topic(
    options: Mapping[str, Any],
    topic: str,
    create: TopicsConfig | None,
    settings: Mapping[str, str] | None,
    policy: str,
) -> int:
    admin = TopicAdmin(BrokerAdmin(options))
    checked_name(topic)
    if create is not None and settings is not None:
        admin.create_missing([TopicSpecification(topic, create.partitions, create.replication_factor, settings)])
    count = admin.partitions().get(topic)
    if count is None:
        raise TopicRefused(
            f"topic {topic!r} does not exist",
            remedy="create it with cleanup.policy=" + policy + ", or pass create=TopicsConfig(partitions=…)",
        )
    drift = admin.drift([TopicSpecification(topic, count, 1, {_POLICY: policy})])
    if drift:
        loses = "its history" if policy == "delete" else "the values of quiet keys, or keeps every version"
        raise TopicRefused(
            f"topic {topic!r} has {_POLICY}={drift[0].found}, which loses {loses}; it must be {policy}",
            remedy=drift[0].remedy,
        )
    return count
