"""Gives each topic its replica table: one topic, one table. Says why when that is impossible."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from cdc.base.errors import ConfigError
from cdc.base.table_names import parts
from cdc.contract.pgtypes import quote_identifier
from cdc.contract.record import TableSchema
from cdc.sink.rejections import TableRefused
from cdc.sink.replica import ReplicaName, ReplicaNaming

_NOWHERE: Final = "(no table: {})"


def nowhere(topic: str) -> str:
    """Returns what ``replica_table`` holds for a topic that has no replica table."""
    return _NOWHERE.format(topic)


class Placement:
    """Finds each topic's replica table.

    Args:
        connection: to the replica.
        recorded: the sink's own table ``mirrored_table``, which says which topic has which replica table.
        sink: the sink's name.
        naming: names replica tables.
    """

    def __init__(self, connection: sa.Connection, recorded: sa.Table, sink: str, naming: ReplicaNaming) -> None:
        self._connection = connection
        self._recorded = recorded
        self._sink = sink
        self._naming = naming
        self._topics: dict[tuple[str, str], str] = {}

    def learn(self, schema: TableSchema) -> set[str]:
        """Notes a definition. Returns the topics affected when a source table moves to another topic: old and new."""
        source = schema.namespace, schema.name
        former = self._topics.get(source, schema.topic)
        self._topics[source] = schema.topic
        return set() if former == schema.topic else {former, schema.topic}

    def successor(self, schema: TableSchema) -> str | None:
        """Returns the topic to which the source table is published now; None when it is still this one."""
        newest = self._topics.get((schema.namespace, schema.name), schema.topic)
        return None if newest == schema.topic else newest

    def place(self, schema: TableSchema, known: str | None) -> ReplicaName:
        """Returns the replica table of a topic.

        Args:
            schema: the topic's newest definition.
            known: where the topic was mirrored until now; None for a new topic.

        Raises:
            TableRefused: the topic cannot have that table, or can no longer have it.
        """
        try:
            name = self._naming.place(schema)
        except ConfigError as error:
            raise TableRefused(error.message, remedy=f"{error.remedy}, then restart the sink") from error
        if successor := self.successor(schema):
            at = name if known is None else ReplicaName(*parts(known))
            raise self._moved(schema, at, schema.topic, successor)
        if known not in (None, nowhere(schema.topic), str(name)):
            raise TableRefused(
                f"topic {schema.topic!r} was mirrored into {known} until now, but the configuration says {name}",
                remedy="put the old name under sink.tables; or rename the table, then run in the replica: "
                f"UPDATE {self._recorded.fullname} SET replica_table = '{name}' WHERE topic = '{schema.topic}';  "
                "then restart the sink",
            )
        holder = self._connection.execute(self._others(name, schema.topic)).first()
        if holder is None:
            return name
        source = schema.qualified_name
        if holder.name == self._sink and holder.topic not in self._topics.values():
            raise self._moved(schema, name, holder.topic, schema.topic)
        raise TableRefused(
            f"replica table {name} is already the mirror of topic {holder.topic!r} (sink {holder.name!r})",
            remedy=f"give {source} a table of its own, sink.tables: {{{source!r}: …}}; or give all tables of this sink "
            "another sink.schema or sink.prefix; then restart the sink",
        )

    def _others(self, name: ReplicaName, topic: str) -> sa.Select[Any]:
        """Selects the topics that have this table, except the one that is to have it."""
        columns = self._recorded.c
        is_same = columns.replica_table == str(name)
        if self._naming.folds_case:
            is_same = sa.func.lower(columns.replica_table) == sa.func.lower(str(name))
        is_other = sa.or_(columns.name != self._sink, columns.topic != topic)
        return sa.select(columns.name, columns.topic).where(is_same, is_other)

    def _moved(self, schema: TableSchema, name: ReplicaName, former: str, topic: str) -> TableRefused:
        table = f"{quote_identifier(name.schema)}.{quote_identifier(name.table)}"
        return TableRefused(
            f"{schema.qualified_name} was published to topic {former!r} and is now published to {topic!r}; "
            f"replica table {name} holds the rows of the old topic",
            remedy="to go on with the new topic, stop the sink and run in the replica: "
            f"DROP TABLE {table}; DELETE FROM {self._recorded.fullname} WHERE name = '{self._sink}' "
            f"AND topic = '{former}';  then start the sink, which fills the table again",
        )
