"""Detects tables whose columns differ from those that their topic was last written with.

``ALTER TABLE`` changes rows that the stream never mentions: a new column with a default appears in all of them, and a
new type spells values differently. The stream describes the new columns with the table's next change, which may never
come.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import Any

import psycopg
import structlog

from cdc.bridge.capture.reading import column_signatures, shape_of
from cdc.bridge.order.succession import shape_change
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.scope.hidden import published
from cdc.bridge.source.table import TableInfo
from cdc.contract.schema import table_schema

log = structlog.get_logger("cdc.bridge")


class ShapeWatch:
    """Remembers which columns it has seen, so that only a table that was altered costs more than a comparison."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}

    def look(
        self,
        connection: psycopg.Connection[Any],
        publication: str,
        registry: CapturedTables,
        tables: Collection[TableInfo],
    ) -> dict[str, str]:
        """Warn of tables that were altered since the last look, or since their topics were written.

        Args:
            connection: a connection other than the session's.
            publication: the publication whose column lists apply.
            registry: the session's tables.
            tables: the captured tables, as the catalog has them now.

        Returns:
            Tables whose topics must begin anew, and why; the stream may never say so.
        """
        replaced: dict[str, str] = {}
        signatures = column_signatures(connection, [each.oid for each in tables])
        for table in tables:
            last = registry.successions.last_of(table.oid)
            signature = signatures.get(table.oid)
            if last is None or not last.topic or signature is None or self._seen.get(table.oid) == signature:
                continue
            self._seen[table.oid] = signature
            relation = published(registry.config, shape_of(connection, table, publication))
            now = table_schema(relation, last.key, last.topic)
            if why := registry.replacement(table, now.columns):
                replaced[table.qualified_name] = why
            elif change := shape_change(last, now):
                log.warning(
                    "table was altered: rows that do not change keep their old shape in topic and replica",
                    table=table.qualified_name,
                    change=change,
                    remedy=f"cdc backfill {shlex.quote(table.qualified_name)}",
                )
        return replaced
