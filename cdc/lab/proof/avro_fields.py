"""Turns a value in Avro into the JSON of each column, with the schema that the registry has, by fastavro's reader.

This is deliberately a second implementation, as ``server_text`` is. It shares no code with ``contract/formats/avro``.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple
from uuid import UUID

import fastavro

from cdc.lab.proof.comparison import FORMS
from cdc.lab.proof.server_text import FormError, TypeForm
from cdc.lab.proof.topic_side import ReadFields

_SINGLE: Final = struct.Struct(">f")


class _Column(NamedTuple):
    """A column's own name, and whether it is an array, its values are JSON documents, or floats of four bytes."""

    name: str
    is_array: bool
    is_document: bool
    is_single: bool


def fields_by_avro(schema: str) -> ReadFields:
    """Returns a function that reads what follows the schema's id in values with this schema."""
    given = json.loads(schema)
    parsed, columns = fastavro.parse_schema(given), {each["name"]: _column(each) for each in given["fields"]}

    def fields(value: bytes) -> dict[str, bytes]:
        body = io.BytesIO(value)
        row: Any = fastavro.schemaless_reader(body, parsed)
        if body.read(1):
            raise FormError("the value goes on after its last column")
        return {column.name: _field(row[field], column).encode() for field, column in columns.items()}

    return fields


def _column(field: Mapping[str, Any]) -> _Column:
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
            return _number(value, is_single=column.is_single)
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
            return _moment(value.replace(tzinfo=None).isoformat(" ")) + ("+00" if value.tzinfo else "")
        case time():
            return _moment(value.isoformat())
        case date() | UUID():
            return str(value)
    return str(value)


def _moment(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def _number(value: float, *, is_single: bool) -> str:
    """Returns a number as PostgreSQL prints it: the fewest digits, and an exponent if it is large or small."""
    if not isfinite(value):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    digits = next(
        text
        for places in range(18)
        if (text := f"{value:.{places}e}") and (_single(float(text)) if is_single else float(text)) == value
    )
    mantissa, exponent = digits.split("e")
    if -4 <= int(exponent) < (6 if is_single else 15):
        return format(Decimal(digits), "f")
    return f"{mantissa}e{int(exponent):+03d}"


def _single(value: float) -> float:
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:  # beyond the greatest float4
        return float("inf")
