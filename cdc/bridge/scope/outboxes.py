"""Finds what ``source.outbox`` and ``source.messages`` name, makes encoders, and creates or checks topics of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
import structlog

from cdc.base.config import Config
from cdc.base.errors import SourceRefused, TopicRefused
from cdc.base.table_names import parts
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.messages import MessageEncoder, MessageRule
from cdc.bridge.order.outbox import OutboxEncoder, OutboxRule
from cdc.bridge.source.catalog import table_info
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Relation, ReplicaIdentity
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification, event_settings

log = structlog.get_logger("cdc.bridge")


def present_outboxes(connection: psycopg.Connection[Any], config: Config) -> list[TableInfo]:
    """Returns those of the outbox tables that exist, as the catalog has them."""
    found = (table_info(connection, *parts(table), {}) for table in config.source.outbox)
    return [each for each in found if each is not None]


def find_outboxes(connection: psycopg.Connection[Any], config: Config) -> tuple[TableInfo, ...]:
    """Returns the outbox tables as the catalog has them.

    Raises:
        SourceRefused: one of them is missing, or its rows cannot be read from the WAL.
    """
    found = {each.qualified_name: each for each in present_outboxes(connection, config)}
    for table in config.source.outbox:
        if (info := found.get(table)) is None:
            raise SourceRefused(
                f"outbox table {table} does not exist",
                remedy="create it, or take it out of source.outbox; then restart",
            )
        if info.unlogged:
            raise SourceRefused(
                f"outbox table {table} is unlogged: its rows are not in the WAL",
                remedy=" ".join(mend for _, mend in info.unlogged),
            )
        if not info.key and info.replica_identity is not ReplicaIdentity.FULL:
            raise SourceRefused(
                f"outbox table {table} has no replica identity: once it is published, the server refuses to delete its "
                "rows",
                remedy=f"ALTER TABLE {info.quoted_name} REPLICA IDENTITY FULL;  -- or give it a primary key",
            )
    return tuple(found.values())


class Outboxes:
    """The sources of events of a session: outbox tables, and logical messages.

    Args:
        config: the whole configuration.
        connection: looks them up.
        admin: creates topics.
        histories: the history topic of each state topic; looked up each time, so topics may be added.

    Attributes:
        tables: the tables, as they were when the session began.
        messages: makes events of logical messages.

    Raises:
        SourceRefused: one of them is missing, or its rows cannot be read from the WAL.
    """

    def __init__(
        self, config: Config, connection: psycopg.Connection[Any], admin: TopicAdmin, histories: Mapping[str, str]
    ) -> None:
        self._config = config
        self._admin = admin
        self._histories = histories
        self.tables = find_outboxes(connection, config)
        self.messages = MessageEncoder(
            {prefix: MessageRule(each.topic, each.content) for prefix, each in config.source.messages.items()}
        )

    def encoder(self, relation: Relation) -> OutboxEncoder | None:
        """Returns what makes events of a relation's rows; None if it is not an outbox.

        Raises:
            SourceRefused: the table lacks a column that the configuration names.
        """
        outbox = self._config.source.outbox.get(relation.qualified_name)
        if outbox is None:
            return None
        return OutboxEncoder(relation, OutboxRule(outbox.topic, outbox.id, outbox.key, outbox.payload, outbox.headers))

    def ensure_fixed_topics(self) -> None:
        """Create or check, as ``ensure_topics`` does, the topics that are the same for every event."""
        source = self._config.source
        fixed = [each.topic for each in source.outbox.values() if not each.topic_columns]
        self.ensure_topics({*fixed, *(each.topic for each in source.messages.values())})

    def ensure_topics(self, topics: Iterable[str]) -> None:
        """Create missing topics for events; refuse those that would lose events, or that belong to tables.

        Raises:
            TopicRefused: a topic belongs to a table, or has a cleanup policy other than ``delete``.
        """
        config, names = self._config, sorted(topics)
        if not names:
            return
        taken = {*config.topics.names.values(), *self._histories, *self._histories.values()}
        for topic in names:
            if topic.startswith(f"{config.name}.") or topic in taken:
                raise TopicRefused(
                    f"events cannot go to topic {topic!r}: it belongs to a table, or to the bridge itself",
                    remedy="give the events another topic, in source.outbox or source.messages: {…: {topic: …}}; what "
                    "they are made of is in the WAL and stays there, nothing was skipped",
                )
        existing, settings = self._admin.partitions(), event_settings(config.topics)
        partitions, replicas = config.topics.partitions, config.topics.replication_factor
        wanted = [TopicSpecification(each, existing.get(each, partitions), replicas, settings) for each in names]
        for name in self._admin.create_missing(wanted):
            log.info("created topic", topic=name)
        for drift in self._admin.drift([each for each in wanted if each.name in existing]):
            text = f"topic {drift.topic!r} has {drift.setting}={drift.found}, and events want {drift.wanted}"
            if drift.is_fatal:
                raise TopicRefused(text, remedy=drift.remedy)
            log.warning(text, remedy=drift.remedy)

    def without(self, demands: Iterable[Demand]) -> list[Demand]:
        """Returns the demands for tables. An outbox is not published again: says that its events may be missing."""
        names = {each.qualified_name for each in self.tables}
        of_tables = []
        for each in demands:
            if each.table not in names:
                of_tables.append(each)
                continue
            log.error(
                "events of an outbox may be missing: rows that the stream lacks are never sent",
                table=each.table,
                reason=each.reason,
                remedy="compare the table with its topics; INSERT the rows whose events are missing again",
            )
        return of_tables
