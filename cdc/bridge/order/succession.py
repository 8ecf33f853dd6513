"""Decides whether a relation of the stream goes on with what its topic holds, or the topic has to begin anew. Pure.

Theory of operation. A topic belongs to a table's *name*. Its last definition in ``__schemas`` tells which key it was
written under, and for which table object (``relation_id``, the table's oid). To begin anew means to delete every key in
the topic before the next row goes in. A topic begins anew when

- the key consists of other columns than before, by ``contract.key_identity`` and not by their names: old and new keys
  would stand side by side for the same rows;
- the name has come to another table (dropped and made again, or two tables that swapped names): the rows of the former
  one are gone, and DROP TABLE is not in the stream;
- the table comes back to a name that it had left: what happened meanwhile went elsewhere;
- the configuration wants another format for its values: readers would have to expect both in one topic for ever;
- other columns or rows are to be hidden: what is hidden now is in the records of before;
- rows are published by a condition, and the topic holds none yet: what the stream brings may be from before it;
- its keys get another format, or the schema of its keys another id: the same rows would have other keys.

The stream itself says which columns are the key, where it can. Under REPLICA IDENTITY FULL it flags every column, and
only today's catalog knows. The same columns in another order are the same key, and keep their first order.

The stream tells each column's name and type, but not its number, and not that a value of an enum was renamed. Both are
in the catalog alone, which may be later than the row. So a definition that the stream brings keeps the number and the
labels of the definition before (``kept``). New ones come with rows that were read from the table in one transaction
with its catalog, once the stream has come to where they were read. Until then the topic goes on as it is, with a
backfill on record for it. The backfill's first chunk finds the other column, and empties the topic. Where it is not
certain which column the stream's rows have, the number is 0, and that first chunk empties the topic, too: once too
often rather than never.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from cdc.contract.change import Relation, ReplicaIdentity
from cdc.contract.debezium_modes import mark_of
from cdc.contract.hiding import EXCLUDED
from cdc.contract.key_identity import is_uncertain, key_change
from cdc.contract.kinds import kind_of
from cdc.contract.record import FormatName, SchemaColumn, TableSchema, WrittenSchema

Cause: TypeAlias = Literal["key", "object", "return", "uncertain", "format", "rules", "first", "key-format", "key-id"]

_WHY: Final = {
    "key": "its key is now ({new}), but its topic was written with ({old})",
    "object": "another table has taken this name",
    "return": "it was called {other} for a while",
    "uncertain": "nothing on record shows that its key column {column} is still the same column",
    "format": "its values are to be written as {new} now, but its topic was written as {old}",
    "rules": "its columns leave by other rules now ({new}), but its topic was written by these: {old}",
    "rows": "its rows are chosen by {new} now, but its topic was written by {old}",
    "entry": "the publication got its condition anew, and may have let other rows through for a while",
    "first": "its rows are chosen by a condition, so they are read before changes are published",
    "key-format": "its keys are to be written in {new} now, but its topic was written with keys in {old}",
    "key-id": "the registry gives the schema of its keys the id {new} now, but its keys begin with the id {old}",
}

FOR_A_PERSON: Final[Mapping[Cause, str]] = {
    "key": "set source.on_gap: rebackfill and restart: the old keys are deleted and the table is published again under "
    "the new key; or give it another topic under topics.names",
    "key-format": "set source.on_gap: rebackfill and restart: every key is deleted first, and the table is published "
    "again under keys in the new format; or give it another topic under topics.names; or set topics.key_format back, "
    "and to the same one in the configuration of every bridge of this name",
    "key-id": "restore the registry with its ids; or, if they are lost, set source.on_gap: rebackfill and restart: "
    "every key is deleted first, and the table is published again under keys with the new id; or give it another topic "
    "under topics.names",
    "format": "set source.on_gap: rebackfill and restart: every key is deleted first, and the table is published again "
    "in the new format; or give it another topic under topics.names; or set its format back, and to the same one in "
    "the configuration of every bridge of this name",
}
"""Why a topic begins anew that a person should know of first, and what to do: its readers notice."""


class NewBeginning(NamedTuple):
    """Why a topic cannot be continued; ``why`` completes "table x begins anew: …"."""

    cause: Cause
    why: str


class Successions:
    """Remembers which definition each topic was last written with.

    Args:
        definitions: the stored definitions, in the order in which they were last used.
    """

    def __init__(self, definitions: Iterable[TableSchema] = ()) -> None:
        self._by_topic: dict[str, TableSchema] = {}
        self._by_relation: dict[int, TableSchema] = {}
        self._by_fingerprint: dict[str, dict[str, TableSchema]] = {}
        """Sorted by topic: there may be thousands, and each is asked for."""
        for definition in definitions:
            self.wrote(definition)

    def wrote(self, definition: TableSchema) -> None:
        """Note that the topic is written with this definition from here on."""
        self._by_topic[definition.topic] = definition
        self._by_fingerprint.setdefault(definition.topic, {})[definition.fingerprint] = definition
        if definition.relation_id:
            self._by_relation[definition.relation_id] = definition

    def left(self, relation: Relation) -> None:
        """Note that the table now has a name that is not captured. Its changes are missed until it comes back."""
        before = self._by_relation[relation.relation_id]
        self._by_relation[relation.relation_id] = replace(
            before, namespace=relation.namespace, name=relation.name, topic=""
        )

    def last(self, topic: str) -> TableSchema | None:
        """Returns the definition that the topic was last written with."""
        return self._by_topic.get(topic)

    def format_of(self, topic: str) -> FormatName | None:
        """Returns the format in which the topic was last written; None if no table is written there."""
        last = self._by_topic.get(topic)
        return None if last is None else last.format

    def written(self, topic: str, fingerprint: str) -> tuple[WrittenSchema, ...]:
        """Returns the registry's schemas with which values of a definition were written to the topic."""
        known = self._by_fingerprint.get(topic, {}).get(fingerprint)
        return () if known is None else known.written

    def was_enveloped(self, topic: str) -> bool:
        """Returns whether the topic holds, or held, envelopes."""
        return any(each.envelope or each.was_enveloped for each in self._of(topic))

    def ids(self, topic: str) -> dict[int, WrittenSchema]:
        """Returns every schema of the registry with which values were written to the topic, by its id there."""
        return {each.schema_id: each for definition in self._of(topic) for each in definition.written}

    def key_ids(self, topic: str) -> dict[int, WrittenSchema]:
        """Returns every schema of the registry with which keys were written to the topic, by its id there."""
        known = (definition.key_schema for definition in self._of(topic))
        return {each.schema_id: each for each in known if each is not None}

    def _of(self, topic: str) -> list[TableSchema]:
        # Copied at once: another thread asks, while the session's may add one
        return list(self._by_fingerprint.get(topic, {}).values())

    @property
    def definitions(self) -> list[TableSchema]:
        """Every definition that a topic was written with."""
        return [each for topic in list(self._by_fingerprint) for each in self._of(topic)]

    @property
    def newest(self) -> Iterable[TableSchema]:
        """The definitions that the topics were last written with, one for each topic."""
        return self._by_topic.values()

    def last_of(self, relation_id: int) -> TableSchema | None:
        """Returns the definition that this table was last written with, under any name; without a topic if it left."""
        return self._by_relation.get(relation_id)

    def changed_hands(self, topic: str, relation_id: int) -> NewBeginning | None:
        """Returns why rows of this table cannot be all that the topic holds, by the names that tables had meanwhile.

        Args:
            topic: the topic of the table's name today.
            relation_id: the table's oid.
        """
        last = self._by_topic.get(topic)
        if last is None:
            return None
        if last.relation_id not in (0, relation_id):
            return NewBeginning("object", _WHY["object"])
        elsewhere = self._by_relation.get(relation_id, last)
        if elsewhere.topic != topic:
            return NewBeginning("return", _WHY["return"].format(other=elsewhere.qualified_name))
        return None

    def key(self, relation: Relation, topic: str, catalog: Sequence[str]) -> tuple[str, ...]:
        """Returns the key columns for rows of this relation, in key order.

        Args:
            relation: as the stream described it.
            topic: its topic.
            catalog: the key's columns in today's catalog, which may be later than the row.
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
        """Returns why the topic must begin anew before rows of this definition go in; None if it need not."""
        last = self._by_topic.get(schema.topic)
        if last is None:
            return None if schema.rows is None else NewBeginning("first", _WHY["first"])
        changed = self.changed_hands(schema.topic, schema.relation_id)
        if set(last.key) != set(schema.key) and (changed is None or changed.cause != "object"):
            return NewBeginning("key", _WHY["key"].format(new=", ".join(schema.key), old=", ".join(last.key)))
        if changed is None and _is_written_otherwise(last, schema):
            return NewBeginning("format", _WHY["format"].format(new=_in_words(schema), old=_in_words(last)))
        if changed is None and last.rules != schema.rules:
            return NewBeginning("rules", _WHY["rules"].format(new=_rules(schema), old=_rules(last)))
        if changed is None and last.rows != schema.rows:
            return NewBeginning("rules", _other_rows(last, schema))
        if changed is None and last.key_schema != schema.key_schema:
            return _other_column(last, schema, surely=True) or _other_keys(last.key_schema, schema.key_schema)
        return changed or _other_column(last, schema)

    def kept(self, schema: TableSchema, today: Sequence[SchemaColumn]) -> TableSchema:
        """Returns the definition with the numbers and labels of its key columns, where the rows certainly have these.

        Args:
            schema: the table as the stream described it. What was read from the catalog together with rows stays.
            today: the table's columns in the catalog, which may be later than the row; in attribute order.
        """
        last = self._by_topic.get(schema.topic)
        goes_on = last is not None and self.new_beginning(schema) is None
        before = last if goes_on else self._by_relation.get(schema.relation_id)
        columns = (
            _certain(column, schema, before, today, goes_on=goes_on)
            if column.name in schema.key and not column.number
            else column
            for column in schema.columns
        )
        return replace(schema, columns=tuple(columns))


def _is_written_otherwise(last: TableSchema, schema: TableSchema) -> bool:
    if (last.format, last.envelope, last.is_connects) != (schema.format, schema.envelope, schema.is_connects):
        return True
    if not (last.is_formed or schema.is_formed):
        return False
    # A column that came, or got a type of another kind, has no form to compare with
    forms = {(each.name, kind_of(each.sql_type)): each.form for each in last.columns}
    return any(forms.get((each.name, kind_of(each.sql_type)), each.form) != each.form for each in schema.columns)


def _rules(definition: TableSchema) -> str:
    return ", ".join(f"{column}: {rule}" for column, rule in definition.rules) or "none"


def _other_rows(last: TableSchema, schema: TableSchema) -> str:
    old, new = (None if each.rows is None else each.rows.condition for each in (last, schema))
    if old == new:
        return _WHY["entry"]
    return _WHY["rows"].format(new=new or "no condition", old=old or "none")


def _in_words(definition: TableSchema) -> str:
    if definition.is_formed:
        forms = [f"{each.name} as {each.form}" for each in definition.columns if each.form]
        return f"{definition.format} with {', '.join((*forms, *(['its schema'] if definition.is_connects else ())))}"
    if definition.envelope is None:
        return definition.format
    return f"{definition.format} in Debezium's envelope ({mark_of(definition.envelope)})"


def _other_keys(was: WrittenSchema | None, now: WrittenSchema | None) -> NewBeginning:
    if was is not None and now is not None:
        return NewBeginning("key-id", _WHY["key-id"].format(new=now.schema_id, old=was.schema_id))
    new, old = ("json" if each is None else each.format for each in (now, was))
    return NewBeginning("key-format", _WHY["key-format"].format(new=new, old=old))


def _other_column(last: TableSchema, schema: TableSchema, *, surely: bool = False) -> NewBeginning | None:
    """Returns why the key's columns are, or (not ``surely``) may be, other columns than those of their names before."""
    old, new = ({each.name: each for each in one.columns} for one in (last, schema))
    pairs = [(old[name], new[name]) for name in last.key if name in old and name in new]
    for was, now in pairs:
        if why := key_change(was, now):
            return NewBeginning("key", f"its key column {now.name} {why}")
    for was, now in () if surely else pairs:
        if is_uncertain(was, now):
            return NewBeginning("uncertain", _WHY["uncertain"].format(column=now.name))
    return None


def _certain(
    column: SchemaColumn,
    schema: TableSchema,
    before: TableSchema | None,
    today: Sequence[SchemaColumn],
    *,
    goes_on: bool,
) -> SchemaColumn:
    """Returns a key column of the stream with its number and labels, or without them if it may be another column.

    Numbers only grow, and none is given twice. So a column that has the same number today as before had it all the
    time, unless columns exchanged their names for a while: then other columns stand before it in the stream. A dropped
    column leaves a hole in the numbers.
    """
    was = None if before is None else _named(column.name, before.columns)
    now = _named(column.name, today)
    hidden = {name for each in (schema, before) if each is not None for name, rule in each.rules if rule == EXCLUDED}
    in_front = _in_front(column.name, schema.columns, hidden)
    is_in_place = in_front == _in_front(column.name, today, hidden)
    if was is not None and was.number:
        is_in_place = is_in_place or (before is not None and in_front == _in_front(column.name, before.columns, hidden))
        if is_in_place and (goes_on or (now is not None and now.number == was.number)):
            labels = was.labels if was.type_oid == column.type_oid else ()
            return replace(column, number=was.number, labels=labels)
        return column
    if goes_on or now is None or not is_in_place:
        return column
    numbers = {each.number for each in today}
    return replace(column, number=now.number) if numbers >= set(range(1, now.number)) else column


def _named(name: str, columns: Sequence[SchemaColumn]) -> SchemaColumn | None:
    return next((each for each in columns if each.name == name), None)


def _in_front(name: str, columns: Sequence[SchemaColumn], hidden: Collection[str]) -> list[str]:
    """Returns the columns before this one, without hidden ones: the catalog has these, and definitions do not."""
    names = [each.name for each in columns if each.name not in hidden]
    return names[: names.index(name)] if name in names else [*names, ""]


def _carries(relation: Relation, key: Sequence[str]) -> bool:
    """Whether old rows in the stream contain these columns; if the primary key is the identity, exactly these."""
    wanted = set(key)
    flagged = {column.name for column in relation.columns if column.in_identity}
    if not wanted or not wanted <= {column.name for column in relation.columns}:
        return False
    if not flagged:  # there is no primary key at the moment, so only inserts can come
        return True
    return wanted == flagged if relation.replica_identity is ReplicaIdentity.DEFAULT else wanted <= flagged


def shape_change(before: TableSchema, now: TableSchema) -> str:
    """Returns in words how rows that do not change differ from the table's new shape; empty when they do not."""
    pairs = [(was, _same_column(was, now)) for was in before.columns]
    kept = [(was, column) for was, column in pairs if column is not None]
    gone = [was.name for was, column in pairs if column is None]
    added = [each.name for each in now.columns if each not in [column for _, column in kept]]
    again = [name for name in gone if name in added]
    parts = (
        ("renamed", [f"{was.name} → {column.name}" for was, column in kept if was.name != column.name]),
        ("added", [name for name in added if name not in again]),
        ("dropped", [name for name in gone if name not in again]),
        (
            "of another type",
            [f"{each.name} ({was.sql_type} → {each.sql_type})" for was, each in kept if was.sql_type != each.sql_type],
        ),
        ("dropped and added again", again),
    )
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names)


def _same_column(was: SchemaColumn, now: TableSchema) -> SchemaColumn | None:
    """Returns what has become of a column. Finds it by its number, or by its name if a number is not known."""
    for column in now.columns:
        if column.number == was.number if column.number and was.number else column.name == was.name:
            return column
    return None
