"""Turns a value in Avro into the JSON of each column, with fastavro's reader; and Debezium's envelopes into JSON.

This is deliberately a second implementation, as ``server_text`` is. It shares no code with ``contract/formats/avro``.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import fastavro

from cdc.lab.proof.comparison import FORMS
from cdc.lab.proof.json_texts import moment_text, number_text
from cdc.lab.proof.server_text import FormError, TypeForm
from cdc.lab.proof.topic_side import ReadFields, registered_schema, with_schema_id

_MANGLED: Final = re.compile("_u([0-9A-Fa-f]+)_")
_MEMBERS: Final = ("before", "after", "source", "op")


class _Column(NamedTuple):
    """A column's own name, and whether it is an array, its values are JSON documents, or floats of four bytes."""

    name: str
    is_array: bool
    is_document: bool
    is_single: bool


def reader_of(text: str) -> ReadFields:
    """Returns a function that reads values of a schema, without what precedes the row."""
    given = json.loads(text)
    schema, columns = fastavro.parse_schema(given), {each["name"]: _column(each) for each in given["fields"]}

    def fields(row: bytes) -> dict[str, bytes]:
        body = io.BytesIO(row)
        found: Any = fastavro.schemaless_reader(body, schema, None)
        if body.read(1):
            raise FormError("the value goes on after its last column")
        return {column.name: _field(found[field], column).encode() for field, column in columns.items()}

    return fields


def _column(field: Mapping[str, Any]) -> _Column:
    if "pg" not in field:  # keys have as little in their schema as they can
        return _Column(_MANGLED.sub(lambda found: chr(int(found[1], 16)), field["name"]), False, False, False)
    sql_type = field["pg"]["type"]
    is_document = FORMS.get(sql_type.removesuffix("[]")) is TypeForm.DOCUMENT
    return _Column(field["pg"]["name"], sql_type.endswith("[]"), is_document, '"float"' in json.dumps(field["type"]))


def _field(value: Any, column: _Column) -> str:
    # The text of an array that Avro's cannot hold, not one of its elements
    return json.dumps(value, ensure_ascii=False) if column.is_array and isinstance(value, str) else _json(value, column)


def _json(value: Any, column: _Column) -> str:
    """Returns a value as the topic contract writes it in JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{','.join(_json(each, column) for each in value)}]"
        case str() if column.is_document:
            return value
        case float():
            return number_text(value, is_single=column.is_single)
        case int():
            return str(value)
        case bytes():
            return f'"\\\\x{value.hex()}"'
    return json.dumps(_text(value), ensure_ascii=False)


def _text(value: Any) -> str:
    match value:
        case Decimal():
            return format(value, "f")
        case datetime():
            return moment_text(value.replace(tzinfo=None).isoformat(" ")) + ("+00" if value.tzinfo else "")
        case time():
            return moment_text(value.isoformat())
        case date() | UUID():
            return str(value)
    return str(value)


def events_by_registry(url: str) -> Callable[[bytes], Mapping[str, str]]:
    """Returns a function that reads envelopes by the schemas of this registry: the JSON of each member."""

    @cache
    def schema_of(schema_id: int) -> tuple[Any, frozenset[str]]:
        _, text = registered_schema(url, schema_id)
        schema = json.loads(text)
        row = next(each for each in schema["fields"][0]["type"] if each != "null")
        singles = frozenset(each["name"] for each in row["fields"] if '"float"' in json.dumps(each["type"]))
        return fastavro.parse_schema(_bare(schema)), singles

    def members(value: bytes) -> Mapping[str, str]:
        schema_id, event = with_schema_id(value)
        schema, singles = schema_of(schema_id)
        body = io.BytesIO(event)
        found: Any = fastavro.schemaless_reader(body, schema, None)
        if body.read(1):
            raise FormError("the envelope goes on after its last field")
        return {name: _event_json(found[name], singles) for name in _MEMBERS}

    return members


def _bare(schema: Any) -> Any:
    """Returns a schema without logical types: Python's decimals would round long ones."""
    if isinstance(schema, dict):
        return {name: _bare(each) for name, each in schema.items() if name != "logicalType"}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema


def _event_json(value: Any, singles: frozenset[str], *, is_single: bool = False) -> str:
    """Returns the JSON of a value; ``singles`` are members whose floats have four bytes."""
    match value:
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case float():
            return number_text(value, is_single=is_single)
        case list():
            return f"[{','.join(_event_json(each, singles, is_single=is_single) for each in value)}]"
        case dict():
            members = (
                f"{json.dumps(name)}:{_event_json(each, singles, is_single=name in singles)}"
                for name, each in value.items()
            )
            return "{" + ",".join(members) + "}"
    return json.dumps(value, ensure_ascii=False)
