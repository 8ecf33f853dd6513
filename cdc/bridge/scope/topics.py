"""Names the topics of the captured tables, and says how each has to be set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cdc.base.config import Config
from cdc.bridge.source.table import TableInfo
from cdc.contract.naming import history_topic, progress_topic, quarantine_topic, schemas_topic, topic_name
from cdc.contract.patterns import in_scope
from cdc.contract.record import TableSchema
from cdc.kafka.publish.topics import TopicSpecification, bookkeeping_settings, history_settings, state_settings


def state_topic(config: Config, namespace: str, name: str) -> str:
    """Returns the topic of a table: the configured one, or else the one that the naming rule gives."""
    return topic_name(config.name, namespace, name, config.topics.names)


def state_topic_schema(config: Config, info: TableInfo) -> TableSchema:
    """Returns as much of a table's definition as it takes to name its replica."""
    return TableSchema("", info.namespace, info.name, state_topic(config, info.namespace, info.name), info.key, ())


def bookkeeping_topics(config: Config, tables: Iterable[TableInfo]) -> dict[str, list[str]]:
    """Returns the topics beside the tables' own that must not lose a record, and the tables that depend on each."""
    names = [each.qualified_name for each in tables]
    found = {schemas_topic(config.name): names}
    if aside := [each for each in names if each in config.source.quarantine]:
        found[quarantine_topic(config.name)] = aside
    return found


def history_topics(config: Config, tables: Iterable[TableInfo]) -> dict[str, str]:
    """Returns history topics by state topic, for those of the tables that ``topics.history`` matches.

    Raises:
        ConfigError: a name is longer than Kafka allows.
    """
    topics = [
        state_topic(config, each.namespace, each.name)
        for each in tables
        if in_scope(each.namespace, each.name, config.topics.history, ())
    ]
    return {topic: history_topic(topic) for topic in topics}


def topic_specifications(config: Config, tables: Sequence[TableInfo]) -> list[TopicSpecification]:
    """Returns every topic that a bridge with these tables writes to, with the settings that it should have."""
    topics = config.topics
    state, bookkeeping = state_settings(topics), bookkeeping_settings(topics)
    return [
        TopicSpecification(progress_topic(config.name), 1, topics.replication_factor, bookkeeping),
        TopicSpecification(schemas_topic(config.name), 1, topics.replication_factor, bookkeeping),
        *(
            [TopicSpecification(quarantine_topic(config.name), 1, topics.replication_factor, bookkeeping)]
            if config.source.quarantine
            else []
        ),
        *(
            TopicSpecification(
                state_topic(config, each.namespace, each.name), topics.partitions, topics.replication_factor, state
            )
            for each in tables
        ),
        *(
            TopicSpecification(history, topics.partitions, topics.replication_factor, history_settings(topics))
            for history in history_topics(config, tables).values()
        ),
    ]
