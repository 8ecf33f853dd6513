"""Turns a value in Avro into the JSON of each column, with fastavro's reader.

This is deliberately a second implementation, as ``server_text`` is. It shares no code with ``contract/formats/avro``.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import fastavro

from cdc.lab.proof.comparison import FORMS
from cdc.lab.proof.json_texts import moment_text, number_text
from cdc.lab.proof.server_text import FormError, TypeForm
from cdc.lab.proof.topic_side import ReadFields

_MANGLED: Final = re.compile("_u([0-9A-Fa-f]+)_")


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
