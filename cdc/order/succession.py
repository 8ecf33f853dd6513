"""Whether a relation of the stream goes on with what its topic holds, or the topic has to begin anew. Pure.

Theory of operation. A topic belongs to a table's *name*. Its last definition in ``__schemas`` tells under which key,
and for which table object (``relation_id``, the table's oid), it was written. The topic begins anew, that is every key
in it is deleted before the next row goes in, when

- the key consists of other columns than before: old and new keys would stand side by side for the same rows;
- the name has come to another table (dropped and made again, or two tables that swapped names): the rows of the one
  before are gone, and DROP TABLE is not in the stream;
- the table comes back to a name that it had left: what happened meanwhile went elsewhere.

Which columns are the key, the stream says itself where it can; under REPLICA IDENTITY FULL it flags every column, and
only the catalog of today knows. The same columns in another order are the same key, and keep their first order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from cdc.change import Relation, ReplicaIdentity
from cdc.record import TableSchema

Cause: TypeAlias = Literal["key", "object", "return"]

_WHY: Final = {
    "key": "its key is now ({new}), and the topic was written under ({old})",
    "object": "it is another table than the one of that name before",
    "return": "it was called {other} for a while",
}


class NewBeginning(NamedTuple):
    """Why a topic cannot be gone on with; ``why`` completes "table x begins anew: …"."""

    cause: Cause
    why: str


class Successions:
    """Remembers which definition each topic was last written with.

    Args:
        definitions: in the order in which they were used last.
    """

    def __init__(self, definitions: Iterable[TableSchema] = ()) -> None:
        self._by_topic: dict[str, TableSchema] = {}
        self._by_relation: dict[int, TableSchema] = {}
        for definition in definitions:
            self.wrote(definition)

    def wrote(self, definition: TableSchema) -> None:
        """From here on the topic is written with this definition."""
        self._by_topic[definition.topic] = definition
        if definition.relation_id:
            self._by_relation[definition.relation_id] = definition

    def left(self, relation: Relation) -> None:
        """The table goes by a name that is not captured; changes are missed until it comes back."""
        before = self._by_relation[relation.relation_id]
        self._by_relation[relation.relation_id] = replace(
            before, namespace=relation.namespace, name=relation.name, topic=""
        )

    def last(self, topic: str) -> TableSchema | None:
        """The definition that the topic was last written with."""
        return self._by_topic.get(topic)

    @property
    def newest(self) -> Iterable[TableSchema]:
        """Of each topic the definition that it was last written with."""
        return self._by_topic.values()

    def last_of(self, relation_id: int) -> TableSchema | None:
        """The definition that this table was last written with, under whatever name; no topic when it had left."""
        return self._by_relation.get(relation_id)

    def key(self, relation: Relation, topic: str, catalog: Sequence[str]) -> tuple[str, ...]:
        """The key columns for rows of this relation, in key order.

        Args:
            relation: as the stream described it.
            topic: its topic.
            catalog: what the catalog calls the key today, which may be later than the row.
        """
        last = self._by_topic.get(topic)
        before = last.key if last is not None else ()
        exact = relation.replica_identity is ReplicaIdentity.DEFAULT
        if _carries(relation, before) and (exact or set(before) == set(catalog) or not _carries(relation, catalog)):
            return before
        if _carries(relation, catalog):
            return tuple(catalog)
        return tuple(column.name for column in relation.columns if column.in_identity)

    def new_beginning(self, schema: TableSchema) -> NewBeginning | None:
        """Why the topic must begin anew before rows of this definition go in; None when it need not."""
        last = self._by_topic.get(schema.topic)
        if last is None:
            return None
        if last.relation_id not in (0, schema.relation_id):
            return NewBeginning("object", _WHY["object"])
        if set(last.key) != set(schema.key):
            return NewBeginning("key", _WHY["key"].format(new=", ".join(schema.key), old=", ".join(last.key)))
        elsewhere = self._by_relation.get(schema.relation_id, last)
        if elsewhere.topic != schema.topic:
            other = elsewhere.qualified_name
            return NewBeginning("return", _WHY["return"].format(other=other))
        return None


def _carries(relation: Relation, key: Sequence[str]) -> bool:
    """Whether old rows of the stream tell these columns apart; with the primary key as identity, exactly these."""
    wanted = set(key)
    flagged = {column.name for column in relation.columns if column.in_identity}
    if not wanted or not wanted <= {column.name for column in relation.columns}:
        return False
    if not flagged:  # no primary key at the moment: only inserts can come
        return True
    return wanted == flagged if relation.replica_identity is ReplicaIdentity.DEFAULT else wanted <= flagged


def shape_change(before: TableSchema, now: TableSchema) -> str:
    """What of a table's rows that do not change looks different from now on, in words; empty when nothing does."""
    old, new = ({column.name: column for column in each.columns} for each in (before, now))
    former = {column.number: column.name for column in before.columns if column.number}
    renamed = {name: former[each.number] for name, each in new.items() if name not in old and each.number in former}
    renamed = {name: other for name, other in renamed.items() if other not in new}
    both = [(old[name], each) for name, each in new.items() if name in old]
    parts = (
        ("renamed", [f"{other} → {name}" for name, other in renamed.items()]),
        ("added", [name for name in new if name not in old and name not in renamed]),
        ("dropped", [name for name in old if name not in new and name not in renamed.values()]),
        (
            "of another type",
            [f"{was.name} ({was.sql_type} → {now.sql_type})" for was, now in both if was.sql_type != now.sql_type],
        ),
        (
            "dropped and added again",
            [was.name for was, now in both if was.sql_type == now.sql_type and 0 != was.number != now.number != 0],
        ),
    )
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)
