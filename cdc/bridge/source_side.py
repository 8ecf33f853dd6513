"""Asks the source for the loop: how relations are encoded, which commits are visible, and what rows are now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import structlog

from cdc.base.errors import SourceBusy
from cdc.bridge.capture.reread import current_snapshot
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.needs import Definition, Rows
from cdc.bridge.order.succession import NewBeginning
from cdc.bridge.rereader import Reading, Rereader
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.scope.hidden import readable_until
from cdc.bridge.sides import FoundRelation
from cdc.contract.change import Relation
from cdc.contract.snapshot import Snapshot

log = structlog.get_logger("cdc.bridge")


class SourceSide:
    """The source, as the loop sees it in one session.

    Args:
        sql: a connection whose ``lock_timeout`` bounds how long a look-up may take.
        registry: looks tables up, on the same connection.
        rereader: reads rows again.
    """

    def __init__(self, sql: psycopg.Connection[Any], registry: CapturedTables, rereader: Rereader) -> None:
        self._sql = sql
        self._registry = registry
        self._rereader = rereader

    def snapshot(self) -> Snapshot:
        """Returns what the source shows now."""
        return current_snapshot(self._sql)

    def look_up(self, need: Definition) -> FoundRelation | None:
        """Returns how a relation is encoded; None while its transaction is not visible, or somebody locks the table."""
        if (outbox := self._registry.outboxes.encoder(need.relation)) is not None:
            return FoundRelation(outbox)
        if self._registry.withholds(need.relation):
            return FoundRelation(None)
        if not self.snapshot().sees(need.xid):
            return None
        try:
            table = self._registry.encoder(need.relation)
        except SourceBusy:
            return None
        if table is None:
            return FoundRelation(None, demand=self._registry.missed())
        beginning = self._new_beginning(table)
        return FoundRelation(table, beginning is not None, self._registry.demand(table, beginning))

    def meet(self, relation: Relation) -> Sequence[Demand]:
        """Take note of a relation that was described. Returns what must be published again because of it."""
        return self._registry.meet(relation)

    def begins_anew(self, table: TableEncoder) -> Demand | None:
        """Returns the backfill of a table whose topic must be emptied first; None when it need not be."""
        beginning = self._new_beginning(table)
        return None if beginning is None else self._registry.demand(table, beginning)

    def read(self, need: Rows, timeout_s: float) -> Reading | None:
        """Returns rows as they are now; None when there is no answer yet."""
        return self._rereader.read(need, self._registry.successions.last(need.table.topic), timeout_s)

    def _new_beginning(self, table: TableEncoder) -> NewBeginning | None:
        beginning = self._registry.new_beginning(table)
        if beginning is not None and beginning.cause != "first":
            name = table.relation.qualified_name
            log.warning(
                "table begins anew: every key of its topic is deleted first",
                table=name,
                reason=beginning.why,
                remedy="wait: its rows are published again by themselves; `cdc backfill --list` says how far",
            )
            if beginning.cause == "rules":
                log.warning(
                    "Kafka's files still hold the values of before",
                    table=name,
                    until=readable_until(self._registry.config),
                    remedy="to be rid of them sooner, give the table another topic under topics.names, and delete "
                    f"the old one: kafka-topics.sh --delete --topic {table.topic}",
                )
        return beginning
