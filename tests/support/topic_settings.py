"""What an operator does to a topic by hand: another setting, records deleted before their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from tests.support.waiting import eventually

_TIMEOUT_S: Final = 60


def set_topic(bootstrap: str, topic: str, name: str, value: str) -> None:
    """Change one setting, and see that the broker says so."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    admin, resource = AdminClient({"bootstrap.servers": bootstrap}), ConfigResource(ResourceType.TOPIC, topic)
    admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])[
        resource
    ].result(30)
    eventually(lambda: admin.describe_configs([resource])[resource].result(30)[name].value == value)


def delete_records(bootstrap: str, topic: str) -> None:
    """Everything in it; brokers allow it only where cleanup.policy says delete."""
    set_topic(bootstrap, topic, "cleanup.policy", "compact,delete")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = admin.list_topics(topic, 10).topics[topic].partitions
    everything = [TopicPartition(topic, number, OFFSET_END) for number in partitions]
    eventually(lambda: _are_deleted(admin, everything))
    set_topic(bootstrap, topic, "cleanup.policy", "compact")


def create_topic(admin: AdminClient, topic: NewTopic) -> None:
    """Create it, and see it among those that the broker tells of, which may be a moment later."""
    admin.create_topics([topic])[topic.topic].result(_TIMEOUT_S)
    eventually(lambda: topic.topic in admin.list_topics(timeout=_TIMEOUT_S).topics)


def make_topic(options: Mapping[str, Any], name: str, partitions: int, policy: str) -> None:
    """Create it, as the bridge does.

    Args:
        policy: ``cleanup.policy``.
    """
    wanted = TopicSpecification(name, partitions, 1, {"cleanup.policy": policy})
    TopicAdmin(BrokerAdmin(options)).create_missing([wanted])


def delete_topics_with(bootstrap: str, part: str) -> None:
    """Every topic in whose name this is; one that is being deleted may be listed still."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if names := [name for name in admin.list_topics(timeout=_TIMEOUT_S).topics if part in name]:
        for future in admin.delete_topics(names).values():
            error = future.exception(_TIMEOUT_S)
            if error and not (
                isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            ):
                raise error


def _are_deleted(admin: AdminClient, until: Sequence[TopicPartition]) -> bool:
    """False when the log has not heard of its new policy yet: a broker says a setting before its logs follow it."""
    try:
        for future in admin.delete_records(list(until)).values():
            future.result(30)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.POLICY_VIOLATION:
            return False
        raise
    return True
