"""The conditions of ``source.rows``: which tables cannot be filtered by them, and what is in force in a session.

Theory of operation. The publication filters, so a hidden row never reaches the bridge. But the server decodes each
change with the publication as it was when the change was made. WAL from before a condition came into force has rows
that it hides, and lacks rows that it shows; a transaction that was running then has both. So a table whose topic was
not written by the condition in force is withheld: nothing that the stream brings of it is published, until its backfill
has a snapshot in which everything from before is over. Then its topic begins anew, which puts the condition on record,
and the table is read once more from there. What decides is on record alone, so a restart at any moment decides the
same.

A publication's entry that was removed and added again counts as another condition, with the same words: what the stream
had in between is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import psycopg

from cdc.base.config import Config
from cdc.base.errors import SourceBusy
from cdc.base.table_names import in_yaml
from cdc.bridge.scope.left_out import LeftOut
from cdc.bridge.source.publication import PublicationState, filter_commands, inspect_publication, rehearse
from cdc.bridge.source.rights import table_rights
from cdc.bridge.source.row_filter import applies, filter_of, is_carried_whole, why_not_filtered
from cdc.bridge.source.table import TableInfo
from cdc.contract.record import RowRule, TableSchema


def row_misfit(connection: psycopg.Connection[Any], config: Config, info: TableInfo) -> LeftOut | None:
    """Returns why a table cannot be filtered by its condition; None if it can, or has none."""
    try:
        why = why_not_filtered(connection, info)
    except SourceBusy as error:
        return _left(config, info, error.message, error.remedy)
    return None if why is None else _left(config, info, why.reason, why.remedy)


def wrongly_filtered(connection: psycopg.Connection[Any], config: Config, tables: Iterable[TableInfo]) -> list[LeftOut]:
    """Returns tables that the publication does not filter by their conditions, and that we cannot make it filter."""
    ruled = [each for each in tables if each.condition is not None]
    if not ruled:
        return []
    state, rights = inspect_publication(connection, config.source.publication), table_rights(connection, ruled)
    found = []
    for info in ruled:
        is_owned = info.qualified_name in rights and rights[info.qualified_name].owned
        may_alter = config.source.publication_mode == "filtered" and (state is None or (state.owned and is_owned))
        try:
            found += _wrongly(connection, config, info, state, may_alter=may_alter)
        except SourceBusy as error:
            found.append(_left(config, info, error.message, error.remedy))
    return found


def _wrongly(
    connection: psycopg.Connection[Any],
    config: Config,
    info: TableInfo,
    state: PublicationState | None,
    *,
    may_alter: bool,
) -> list[LeftOut]:
    name, publication = info.qualified_name, config.source.publication
    is_carried = state is not None and name in state.tables
    if is_carried and applies(connection, publication, info):
        return []
    if may_alter:
        if not (said := rehearse(connection, state, publication, info)):
            return []
        remedy = f"correct source.rows for {in_yaml(name)}: a row filter takes immutable built-in functions only"
        return [_left(config, info, f"table {name} cannot be filtered by source.rows: {said}", remedy)]
    if state is None or not is_carried:
        return []  # which is said of every such table
    commands = " ".join(filter_commands(state, info))
    if is_carried_whole(connection, publication, info.oid):
        why = (
            f"publication {publication} carries table {name} with all others, or its whole schema: it cannot filter it"
        )
        commands = f"name the tables one by one in the publication; this one: {commands}"
    else:
        why = f"publication {publication} does not filter table {name} by its condition in source.rows"
    return [_left(config, info, why, commands)]


def _left(config: Config, info: TableInfo, why: str, remedy: str) -> LeftOut:
    return LeftOut(info.qualified_name, why, remedy, info.qualified_name in config.source.tables, "table")


class RowRules:
    """The row filters in force in one session.

    Args:
        connection: reads the publication.
        config: the whole configuration.
        last: returns the definition that the topic of a table, by schema and name, was last written with.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        config: Config,
        last: Callable[[str, str], TableSchema | None],
    ) -> None:
        self._connection = connection
        self._config = config
        self._last = last
        self._by_table: dict[str, RowRule] = {}

    def of(self, table: str) -> RowRule | None:
        """Returns the row filter by which ``schema.table`` is published; None if all of its rows are."""
        return self._by_table.get(table)

    def wanted(self, tables: Iterable[TableInfo]) -> tuple[TableInfo, ...]:
        """Returns the tables as the publication is to carry them: a condition that the configuration lost goes."""
        return tuple(
            replace(each, condition="") if each.condition is None and self._was_ruled(each) else each for each in tables
        )

    def read(self, tables: Iterable[TableInfo]) -> list[LeftOut]:
        """Read what is in force. Returns the tables that are not filtered as configured, for instance as one is locked.

        Raises:
            SourceUnavailable: the connection broke.
        """
        return [left for each in self.wanted(tables) if (left := self._read(each)) is not None]

    def _read(self, info: TableInfo) -> LeftOut | None:
        publication, may_be_kept = self._config.source.publication, self._config.source.publication_mode != "filtered"
        if info.condition is None or (not info.condition and may_be_kept):
            return None
        try:
            rule = filter_of(self._connection, publication, info.oid)
            if not applies(self._connection, publication, info):
                why = f"publication {publication} does not filter table {info.qualified_name} as configured yet"
                return _left(self._config, info, why, "wait: the bridge tries again by itself")
        except SourceBusy as error:
            return _left(self._config, info, error.message, error.remedy)
        if rule is not None:
            self._by_table[info.qualified_name] = rule
        return None

    def withholds(self, namespace: str, name: str, table: str) -> bool:
        """Whether nothing of ``schema.table`` may be published yet: its topic was not written by what is in force."""
        last = self._last(namespace, name)
        return self.of(table) != (None if last is None else last.rows)

    def renewed(self, tables: Sequence[TableInfo]) -> set[str]:
        """Returns the tables that get another condition, or lose theirs. So their topics begin anew in any case."""
        found = set()
        for info in tables:
            last, now = self._last(info.namespace, info.name), self.of(info.qualified_name)
            before = None if last is None else last.rows
            if (before and before.condition) != (now and now.condition):
                found.add(info.qualified_name)
        return found

    def _was_ruled(self, info: TableInfo) -> bool:
        last = self._last(info.namespace, info.name)
        return last is not None and last.rows is not None
