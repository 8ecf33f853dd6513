"""Relation definitions as ``{name}.__schemas`` stores them, and the fingerprint by which records refer to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, cast, get_args

import orjson

from cdc.contract.change import Column, Relation
from cdc.contract.debezium_modes import mark_of, modes_of
from cdc.contract.parsing import integer, parse_record, text
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import ColumnForm, FormatName, RowRule, SchemaColumn, TableSchema, ValueForms, WrittenSchema

_FORMATS: Final = frozenset(get_args(FormatName))
_FORMS: Final = frozenset(get_args(ColumnForm))
_DEFAULT_FORMS: Final = ValueForms()


def fingerprint(
    relation: Relation,
    key: Sequence[str],
    forms: ValueForms = _DEFAULT_FORMS,
    key_schema: WrittenSchema | None = None,
) -> str:
    """Returns a hash, in 16 hex digits, of what readers depend on: name, key columns, column names, types and forms.

    It leaves out relation id, topic and replica identity, because these do not change the meaning of a record. The
    forms are in it so that a record's header says how the record is written: one table has as many definitions. The
    schema of keys with its id is in it, because with another one the same row has another key. So are the rules by
    which columns are hidden: under others, a value is another one. And so is the condition that rows satisfy.
    """
    shape: list[Any] = [
        relation.namespace,
        relation.name,
        list(key),
        [
            [column.name, sql_type(column), *filter(None, (forms.columns.get(column.name),))]
            for column in relation.columns
        ],
        *(("connect",) if forms.is_connects else ()),
    ]
    if key_schema is not None:
        shape.append(list(key_schema))
    if relation.rules:
        shape.append({"rules": relation.rules})
    if relation.rows is not None:
        shape.append({"rows": list(relation.rows)})
    return blake2b(orjson.dumps(shape), digest_size=8).hexdigest()


def table_schema(
    relation: Relation,
    key: Sequence[str],
    topic: str,
    forms: ValueForms = _DEFAULT_FORMS,
    key_schema: WrittenSchema | None = None,
) -> TableSchema:
    """Returns a relation's definition as readers get it."""
    columns = (schema_column(column, is_key=column.name in key) for column in relation.columns)
    return TableSchema(
        fingerprint=fingerprint(relation, key, forms, key_schema),
        namespace=relation.namespace,
        name=relation.name,
        topic=topic,
        key=tuple(key),
        columns=formed(columns, forms),
        relation_id=relation.relation_id,
        is_connects=forms.is_connects,
        key_schema=key_schema,
        rules=relation.rules,
        rows=relation.rows,
    )


def formed(columns: Iterable[SchemaColumn], forms: ValueForms) -> tuple[SchemaColumn, ...]:
    """Returns the columns with the forms in which their values are written."""
    if not forms.columns:
        return tuple(columns)
    return tuple(replace(each, form=forms.columns.get(each.name, "")) for each in columns)


def schema_column(column: Column, *, is_key: bool) -> SchemaColumn:
    """Returns a column's part of a definition; labels of an enum matter only in keys."""
    labels = column.labels if is_key else ()
    return SchemaColumn(column.name, sql_type(column), column.number, column.type_oid, labels)


def numbered(schema: TableSchema, today: Mapping[str, int], before: TableSchema | None) -> TableSchema:
    """Returns the definition with the attribute numbers of columns outside the key, if they are certain, else 0.

    A definition with the same columns as before keeps their numbers: a column that was dropped and added again looks
    the same in the stream, and rows of the old column may still come. Code that reads the table learns the new number.

    Args:
        schema: the definition from the stream; numbers that were read from the catalog together with rows stay.
        today: the numbers in the catalog, which may be later than the stream, in attribute order.
        before: the definition with which the topic was last written.
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
    """The key of a definition's record."""
    return orjson.dumps({"schema": schema_fingerprint})


def schema_value(schema: TableSchema) -> bytes:
    """The record's value: one JSON object."""
    value: dict[str, Any] = {
        "v": 1,
        "fingerprint": schema.fingerprint,
        "namespace": schema.namespace,
        "name": schema.name,
        "topic": schema.topic,
        "key": schema.key,
        "columns": [_column_value(column) for column in schema.columns],
        "relation": schema.relation_id,
    }
    if schema.format != "json":
        value["format"] = schema.format
    if schema.envelope is not None:
        value["envelope"] = mark_of(schema.envelope)
    if schema.was_enveloped:
        value["was_enveloped"] = True
    if schema.is_connects:
        value["schemas"] = "connect"
    if schema.written:
        value["written"] = [list(each) for each in schema.written]
    if schema.key_schema is not None:
        value["key_schema"] = list(schema.key_schema)
    if schema.rules:
        value["rules"] = [list(each) for each in schema.rules]
    if schema.rows is not None:
        value["rows"] = {"condition": schema.rows.condition, "entry": schema.rows.entry}
    return orjson.dumps(value)


def _column_value(column: SchemaColumn) -> dict[str, Any]:
    value: dict[str, Any] = {
        "name": column.name,
        "type": column.sql_type,
        "number": column.number,
        "type_oid": column.type_oid,
    }
    if column.labels:
        value["labels"] = column.labels
    return {**value, "form": column.form} if column.form else value


def parse_schema(value: bytes) -> TableSchema:
    """Parse a definition.

    Raises:
        DecodeError: not a schema value of version 1.
    """
    return parse_record("schema", "schemas", value, _schema)


def _schema(fields: dict[str, Any]) -> TableSchema:
    return TableSchema(
        fingerprint=text(fields["fingerprint"]),
        namespace=text(fields["namespace"]),
        name=text(fields["name"]),
        topic=text(fields["topic"]),
        key=tuple(map(text, fields["key"])),
        columns=tuple(map(_column, fields["columns"])),
        relation_id=integer(fields.get("relation", 0)),
        format=_format(fields.get("format", "json")),
        written=tuple(_written(*each) for each in fields.get("written", ())),
        envelope=None if "envelope" not in fields else modes_of(text(fields["envelope"])),
        was_enveloped=fields.get("was_enveloped", False) is True,
        is_connects=_is_connects(fields.get("schemas")),
        key_schema=_key_schema(fields.get("key_schema")),
        rules=tuple((text(column), text(rule)) for column, rule in fields.get("rules", ())),
        rows=_rows(fields.get("rows")),
    )


def _rows(found: Any) -> RowRule | None:
    return None if found is None else RowRule(text(found["condition"]), integer(found["entry"]))


def _is_connects(schemas: object) -> bool:
    if schemas not in (None, "connect"):
        raise ValueError(f"values with the schema {schemas!r}, which a newer version of cdc writes")
    return schemas is not None


def _written(number: object, schema: object, name: object) -> WrittenSchema:
    return WrittenSchema(integer(number), text(schema), _format(name))


def _key_schema(found: Any) -> WrittenSchema | None:
    if found is None:
        return None
    written = _written(*found)
    if written.format != "avro":
        raise ValueError(f"keys in {written.format}, which a newer version of cdc writes")
    return written


def _format(name: object) -> FormatName:
    if name not in _FORMATS:
        raise ValueError(f"format {name!r}, which a newer version of cdc writes")
    return cast(FormatName, name)


def _column(fields: dict[str, Any]) -> SchemaColumn:
    return SchemaColumn(
        text(fields["name"]),
        text(fields["type"]),
        integer(fields.get("number", 0)),
        integer(fields.get("type_oid", 0)),
        tuple((integer(oid), text(label)) for oid, label in fields.get("labels", ())),
        _form(fields.get("form", "")),
    )


def _form(name: object) -> ColumnForm:
    if name not in _FORMS:
        raise ValueError(f"form {name!r}, which a newer version of cdc writes")
    return cast(ColumnForm, name)
