"""Which tables are published, where to, and under which key; topics are created and checked on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import structlog

from cdc.capture.catalog import find_tables
from cdc.capture.table import TableInfo, why_unusable
from cdc.change import Relation
from cdc.config import Config
from cdc.encode.naming import progress_topic, schemas_topic, topic_name
from cdc.encode.schema import schema_key, schema_value
from cdc.encode.table import TableEncoder
from cdc.errors import GapError, SourceRefused, TopicRefused
from cdc.publish.topics import TopicAdmin, TopicSpecification, bookkeeping_settings, state_settings

log = structlog.get_logger("cdc.bridge")


def state_topic(config: Config, namespace: str, name: str) -> str:
    """The topic of a table: the configured one, else by the naming rule."""
    return topic_name(config.name, namespace, name, config.topics.names)


def topic_specifications(config: Config, tables: Sequence[TableInfo]) -> list[TopicSpecification]:
    """Every topic that a bridge with these tables writes to, as it should be."""
    topics = config.topics
    state, bookkeeping = state_settings(topics), bookkeeping_settings(topics)
    return [
        TopicSpecification(progress_topic(config.name), 1, topics.replication_factor, bookkeeping),
        TopicSpecification(schemas_topic(config.name), 1, topics.replication_factor, bookkeeping),
        *(
            TopicSpecification(
                state_topic(config, each.namespace, each.name), topics.partitions, topics.replication_factor, state
            )
            for each in tables
        ),
    ]


class TableRegistry:
    """The tables in scope, and an encoder for each relation that the stream describes.

    Args:
        config: the whole configuration.
        connection: for looking up the key of a table that appears later.
        admin: creates topics.
    """

    def __init__(self, config: Config, connection: psycopg.Connection[Any], admin: TopicAdmin) -> None:
        self._config = config
        self._connection = connection
        self._admin = admin
        self._described: set[str] = set()
        source = config.source
        self.tables = find_tables(connection, source.tables, source.exclude, source.keys)
        if not self.tables:
            raise SourceRefused(
                f"no table matches source.tables ({', '.join(source.tables)})",
                remedy="correct source.tables, or create the tables first",
            )
        _refuse(self.tables)
        self._infos = {(each.namespace, each.name): each for each in self.tables}

    def ensure_topics(self) -> None:
        """Create missing topics; refuse those that would lose or scatter state, warn of other drift.

        Raises:
            TopicRefused: cleanup policy or partition count is not what it must be.
        """
        specifications = topic_specifications(self._config, self.tables)
        for name in self._admin.create_missing(specifications):
            log.info("created topic", topic=name)
        for drift in self._admin.drift(specifications):
            text = f"topic {drift.topic!r} has {drift.setting}={drift.found}, wanted {drift.wanted}"
            if drift.is_fatal:
                raise TopicRefused(text, remedy=drift.remedy)
            log.warning(text, remedy=drift.remedy)

    def knows(self, relation: Relation) -> bool:
        """Whether ``encoder`` answers without looking into the catalog."""
        return (relation.namespace, relation.name) in self._infos

    def encoder(
        self, relation: Relation, produce: Callable[[str, bytes, bytes | None, bytes], None]
    ) -> TableEncoder | None:
        """The encoder for a relation, its definition written to ``__schemas``; None for a table not in scope.

        Raises:
            GapError: its key is no longer the one that its topic was written under.
        """
        info = self._infos.get((relation.namespace, relation.name)) or self._discover(relation)
        if info is None:
            return None
        flagged = {column.name for column in relation.columns if column.in_identity}
        if not set(info.key) <= flagged:
            raise GapError(
                f"the key of {relation.qualified_name} changed: the stream says ({', '.join(sorted(flagged))}), "
                f"its topic is keyed by ({', '.join(info.key)})",
                remedy="give the table a new topic under topics.names, so that both keys are never mixed",
            )
        topic = state_topic(self._config, relation.namespace, relation.name)
        table = TableEncoder(relation, info.key, topic)
        if table.fingerprint not in self._described:
            self._described.add(table.fingerprint)
            produce(schemas_topic(self._config.name), schema_key(table.fingerprint), schema_value(table.schema), b"")
        return table

    def _discover(self, relation: Relation) -> TableInfo | None:
        """A table that joined the publication after the start: ours if the patterns say so."""
        source = self._config.source
        in_scope = find_tables(self._connection, source.tables, source.exclude, source.keys)
        name = (relation.namespace, relation.name)
        info = next((each for each in in_scope if (each.namespace, each.name) == name), None)
        if info is None:
            return None
        _refuse([info])
        self._infos[name] = info
        self.tables = (*self.tables, info)
        self.ensure_topics()
        return info


def _refuse(tables: Sequence[TableInfo]) -> None:
    """Stop on tables that cannot be carried, all of them by name, with the command for each."""
    refusals = [(info.qualified_name, refusal) for info in tables if (refusal := why_unusable(info))]
    if refusals:
        names = ", ".join(name for name, _ in refusals)
        raise SourceRefused(
            "; ".join(refusal.reason for _, refusal in refusals),
            remedy="\n".join([*(refusal.remedy for _, refusal in refusals), f"or source.exclude: [{names}]"]),
        )
