"""The tables that a bridge's topics fill: from definitions to ``FilledTable``, and the state of each at a cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from cdc.base.errors import ConfigError
from cdc.base.table_names import parts
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.ports import Beginning, CutStanding, ReplicaTable
from cdc.contract.record import TableSchema
from cdc.contract.table_states import IN_CUT, TableState, at_cut
from cdc.views.table.facts import KeyColumn, TableFacts
from cdc.views.table.feed_facts import FeedTopic
from cdc.views.table.filled import INTERRUPTED, FilledTable
from cdc.views.table.filling import Filling
from cdc.views.table.forms import table_form
from cdc.views.table.indexes import Indexes
from cdc.views.table.keys import is_respelled

Wanted = Callable[[str, str], bool]
"""Tells whether the view keeps the table with a namespace and name."""

ASKED: Final = "the operator asked for it"
OTHER_KEY: Final = "its key has changed"


class FilledTables:
    """The tables of a deployment that the view keeps, by topic.

    Args:
        facts: what readers know of the stored tables.
        feed: what the feed knows of each topic.
        wanted: tells which tables the configuration wants.
        indexes: the columns of each index, by ``schema.table``.
        retired: the greatest number of a table that left.
    """

    def __init__(
        self,
        facts: Iterable[TableFacts],
        feed: Mapping[str, FeedTopic],
        wanted: Wanted,
        indexes: Mapping[str, Sequence[Sequence[str]]],
        retired: int = 0,
    ) -> None:
        self._wanted = wanted
        self._indexes = indexes
        self._schemas: dict[str, list[TableSchema]] = {}
        self._owners: dict[str, str] = {}
        self._tables = {each.topic: FilledTable(each, feed.get(each.topic, FeedTopic())) for each in facts}
        self._number = max((retired, *(each.facts.number for each in self._tables.values())))
        self._gone: list[FilledTable] = []
        self._renamed: list[str] = []

    def __getitem__(self, topic: str) -> FilledTable:
        return self._tables[topic]

    def __contains__(self, topic: object) -> bool:
        return topic in self._tables

    def __iter__(self) -> Iterator[FilledTable]:
        return iter(self._tables.values())

    def active(self) -> list[str]:
        """Returns the topics whose tables take rows."""
        return [topic for topic, table in self._tables.items() if table.takes_rows]

    def shown(self) -> dict[str, ReplicaTable]:
        """Returns all tables in the form that the loop which fills them uses."""
        return {
            topic: ReplicaTable(
                topic, each.facts.name, each.feed.state, each.feed.reason or None, each.feed.rows_applied
            )
            for topic, each in self._tables.items()
            if each.feed.state
        }

    def learn(self, schemas: Sequence[TableSchema]) -> frozenset[str]:
        """Takes definitions in the order in which they were used.

        Returns:
            The topics whose tables are stored under another key: they must begin anew.

        Raises:
            ConfigError: an index names an unknown column.
        """
        changed: dict[str, None] = {}
        for schema in schemas:
            known = self._schemas.setdefault(schema.topic, [])
            name = schema.qualified_name
            former = self._owners.get(name, schema.topic)
            self._owners[name] = schema.topic
            changed |= dict.fromkeys((former, schema.topic) if former != schema.topic else ())
            if known and known[-1] == schema:
                continue  # published again, as each of the bridge's sessions does
            if schema in known:
                known.remove(schema)
            known.append(schema)
            changed[schema.topic] = None
        for topic in sorted(changed, key=self._is_retired, reverse=True):
            self._establish(topic)
        return frozenset(topic for topic in changed if topic in self._tables and self._tables[topic].has_other_key)

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._gone or self._renamed) or any(each.is_changed for each in self)

    def drop_unwanted(self) -> list[str]:
        """Removes the tables that the configuration no longer wants; returns their topics."""
        names = {topic: parts(table.facts.name) for topic, table in self._tables.items()}
        unwanted = [topic for topic, (namespace, name) in names.items() if not self._wanted(namespace, name)]
        for topic in unwanted:
            self._remove(topic)
        return unwanted

    def begin(
        self, topic: str, *, resumes: bool, why_anew: str, is_asked: bool, now: float, holds_rows: bool
    ) -> Beginning:
        """Begins to fill a topic's table. Arguments are those of ``ReplicaWriter.begin``; do readers see rows of it?"""
        table = self._tables.get(topic)
        if table is None or not table.takes_rows:
            return "stopped"
        why = ASKED if is_asked else why_anew
        if not why and table.has_other_key:
            why = OTHER_KEY
        if not why and not resumes and (holds_rows or table.facts.filling):
            why = table.feed.reason or INTERRUPTED
        if why or not resumes or not table.facts.generation:  # offsets of rows that went with their table
            table.begin_anew(why, now, holds_rows=holds_rows)
            return "anew"
        if table.feed.state in IN_CUT:
            return "joined"
        table.resume()
        return "outside"

    def at_cut(self, standing: CutStanding) -> list[FilledTable]:
        """Moves each table to its state after a cut; returns the tables that readers must read again."""
        fresh: list[FilledTable] = []
        for topic in self.active():
            table = self._tables[topic]
            was_filling = table.is_filling
            if topic in standing.joining:
                table.change_feed(read_since=None, reason="")
            table.move(*at_cut(topic, standing))
            if table.feed.state in IN_CUT and table.facts.filling:
                table.swap()
            if was_filling and not table.is_filling:
                fresh.append(table)
        return fresh

    def flush(self, filling: Filling) -> None:
        """Writes what has changed."""
        if self._renamed:
            filling.rename(self._renamed)
        for table in self._gone:
            filling.remove(table)
        self._gone, self._renamed = [], []
        for table in self._tables.values():
            table.flush(filling.transaction())

    def _establish(self, topic: str) -> None:
        schemas = self._schemas[topic]
        newest = schemas[-1]
        name = newest.qualified_name
        if self._is_retired(topic) or not self._wanted(newest.namespace, newest.name):
            self._remove(topic)
            return
        table = self._tables.get(topic)
        if table is None:
            self._number += 1
            facts = TableFacts(number=self._number, name=name, topic=topic)
            table = FilledTable(facts, FeedTopic(state=TableState.LOADING), is_new=True)
            self._tables[topic] = table
        elif table.facts.name != name:
            self._renamed += (table.facts.name, name)
            table.rename(name)
        types = {column.name: column.sql_type for column in newest.columns}
        schema_id = None if newest.key_schema is None else newest.key_schema.schema_id
        key = [KeyColumn(each, types[each], is_respelled(types[each]), schema_id) for each in newest.key]
        former = frozenset(each.key for each in schemas) - {newest.key}
        indexes = Indexes(self._checked(name, schemas), types)
        columns = [KeyColumn(column.name, column.sql_type) for column in newest.columns]
        opener, keys = ValueOpener(schemas), TopicKeys(schemas)
        form = table_form(key, former, opener if opener.is_needed else None, keys if keys.is_needed else None)
        table.describe(form, key, columns, indexes)

    def _checked(self, name: str, schemas: Sequence[TableSchema]) -> Sequence[Sequence[str]]:
        """Returns the table's indexes. A dropped column still counts, because older rows have it."""
        indexes = self._indexes.get(name, ())
        known = {column.name for schema in schemas for column in schema.columns}
        if lacking := sorted({column for each in indexes for column in each} - known):
            raise ConfigError(
                f"view.index: table {name} has no column {', '.join(lacking)}",
                remedy=f"name some of: {', '.join(sorted(known))}",
            )
        return indexes

    def _is_retired(self, topic: str) -> bool:
        """Whether its source table is published to another topic now."""
        newest = self._schemas[topic][-1]
        return self._owners[newest.qualified_name] != topic

    def _remove(self, topic: str) -> None:
        if (table := self._tables.pop(topic, None)) is not None:
            self._gone.append(table)
