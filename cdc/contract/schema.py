"""Relation definitions as ``{name}.__schemas`` keeps them, and the fingerprint by which records refer to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import orjson

from cdc.contract.change import Column, Relation
from cdc.contract.parsing import parse_record
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import SchemaColumn, TableSchema


def fingerprint(relation: Relation, key: Sequence[str]) -> str:
    """16 hex digits (64 bits) over what a reader depends on: name, key columns, column names and types.

    Relation id, topic and replica identity are left out: they can change without a record meaning anything else.
    """
    shape = [
        relation.namespace,
        relation.name,
        list(key),
        [[column.name, sql_type(column)] for column in relation.columns],
    ]
    return blake2b(orjson.dumps(shape), digest_size=8).hexdigest()


def table_schema(relation: Relation, key: Sequence[str], topic: str) -> TableSchema:
    """The definition as readers get it."""
    return TableSchema(
        fingerprint=fingerprint(relation, key),
        namespace=relation.namespace,
        name=relation.name,
        topic=topic,
        key=tuple(key),
        columns=tuple(schema_column(column, is_key=column.name in key) for column in relation.columns),
        relation_id=relation.relation_id,
    )


def schema_column(column: Column, *, is_key: bool) -> SchemaColumn:
    """A column as definitions have it; an enum's values matter in keys only."""
    labels = column.labels if is_key else ()
    return SchemaColumn(column.name, sql_type(column), column.number, column.type_oid, labels)


def numbered(schema: TableSchema, today: Mapping[str, int], before: TableSchema | None) -> TableSchema:
    """The definition with numbers of the columns outside its key, as far as these are certain; 0 where they are not.

    What has the same columns as before keeps their numbers: a column that was dropped and added again looks the same in
    the stream, and rows of the old one may still come. Whoever reads the table itself learns the new number.

    Args:
        schema: as the stream described the table; nothing is changed of what was read from the catalog with rows.
        today: by the catalog, which may be later than the stream, in attribute order.
        before: what the topic was last written with.
    """
    names = [column.name for column in schema.columns]
    is_todays = [name for name in today if name in names] == names
    known = dict(today) if is_todays else {}
    if before is not None and before.fingerprint == schema.fingerprint:
        known |= {column.name: column.number for column in before.columns if column.number}
    columns = (
        column if column.number or column.name in schema.key else replace(column, number=known.get(column.name, 0))
        for column in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def schema_key(schema_fingerprint: str) -> bytes:
    """The key under which a definition stands."""
    return orjson.dumps({"schema": schema_fingerprint})


def schema_value(schema: TableSchema) -> bytes:
    """The record's value, one JSON object."""
    return orjson.dumps(
        {
            "v": 1,
            "fingerprint": schema.fingerprint,
            "namespace": schema.namespace,
            "name": schema.name,
            "topic": schema.topic,
            "key": schema.key,
            "columns": [_column_value(column) for column in schema.columns],
            "relation": schema.relation_id,
        }
    )


def _column_value(column: SchemaColumn) -> dict[str, Any]:
    value = {"name": column.name, "type": column.sql_type, "number": column.number, "type_oid": column.type_oid}
    return {**value, "labels": column.labels} if column.labels else value


def parse_schema(value: bytes) -> TableSchema:
    """Read a definition back.

    Raises:
        DecodeError: not a schema value of version 1.
    """
    return parse_record("schema", "schemas", value, _schema)


def _schema(fields: dict[str, Any]) -> TableSchema:
    schema = TableSchema(
        fingerprint=fields["fingerprint"],
        namespace=fields["namespace"],
        name=fields["name"],
        topic=fields["topic"],
        key=tuple(fields["key"]),
        columns=tuple(
            SchemaColumn(
                column["name"],
                column["type"],
                int(column.get("number", 0)),
                int(column.get("type_oid", 0)),
                tuple((int(oid), str(label)) for oid, label in column.get("labels", ())),
            )
            for column in fields["columns"]
        ),
        relation_id=int(fields.get("relation", 0)),
    )
    texts = [schema.fingerprint, schema.namespace, schema.name, schema.topic, *schema.key]
    texts += [text for column in schema.columns for text in (column.name, column.sql_type)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a name that is not a string")
    return schema
