"""Reads Debezium's envelopes in Avro with fastavro, as the JSON that Kafka Connect's converter would write.

This is deliberately a second implementation, as ``avro_fields`` is. It knows nothing of types: fastavro reads what the
schema says, and numbers of bytes stay bytes.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import fastavro

from cdc.lab.proof.json_texts import number_text
from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import registered_schema, with_schema_id

_MEMBERS: Final = ("before", "after", "source", "op")


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
        return {name: _json(found[name], singles) for name in _MEMBERS}

    return members


def _bare(schema: Any) -> Any:
    """Returns a schema without logical types: Python's decimals would round long ones."""
    if isinstance(schema, dict):
        return {name: _bare(each) for name, each in schema.items() if name != "logicalType"}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema


def _json(value: Any, singles: frozenset[str], *, is_single: bool = False) -> str:
    """Returns the JSON of a value; ``singles`` are members whose floats have four bytes."""
    match value:
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case float():
            return number_text(value, is_single=is_single)
        case list():
            return f"[{','.join(_json(each, singles, is_single=is_single) for each in value)}]"
        case dict():
            members = (
                f"{json.dumps(name)}:{_json(each, singles, is_single=name in singles)}" for name, each in value.items()
            )
            return "{" + ",".join(members) + "}"
    return json.dumps(value, ensure_ascii=False)
