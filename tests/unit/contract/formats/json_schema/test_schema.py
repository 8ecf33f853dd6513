"""The JSON Schema of a table: its types, what it keeps of former ones, and that schemas of others are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest

from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.json_schema.schema import is_same_schema, json_schema, misread, read_schema, succeeding
from cdc.contract.formats.json_schema.types import value_schema
from cdc.contract.pgtypes import BUILTIN_NAMES
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.contract.schema import table_schema

NULL = {"type": "null"}
STRING = {"type": "string"}
INT2 = {"type": "integer", "minimum": -32_768, "maximum": 32_767}
NUMBER = [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]
ORDERS = TableSchema(
    "f" * 16,
    "my.schema",
    "t",
    "topic",
    ("id",),
    (SchemaColumn("id", "int2", 1), SchemaColumn("größe", "float8", 3), SchemaColumn("doc", "jsonb")),
)


def schema_of(*columns: tuple[str, str]) -> str:
    described = tuple(SchemaColumn(name, sql_type) for name, sql_type in (("id", "int4"), *columns))
    return json_schema(replace(ORDERS, columns=described), "shop", "refuse")


def test_the_schema_of_a_table() -> None:
    assert json.loads(json_schema(ORDERS, "my-bridge", "refuse")) == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "my_u2d_bridge.my_u2e_schema.t",
        "type": "object",
        "pg": {"table": ["my.schema", "t"], "key": ["id"], "fingerprint": "f" * 16},
        "properties": {
            "id": {**INT2, "pg": {"name": "id", "type": "int2", "number": 1}},
            "größe": {"oneOf": [NULL, *NUMBER], "pg": {"name": "größe", "type": "float8", "number": 3}},
            "doc": {"pg": {"name": "doc", "type": "jsonb"}},
        },
        "required": ["id"],
        "additionalProperties": False,
    }
    assert json_schema(ORDERS, "my-bridge", "text") == json_schema(ORDERS, "my-bridge", "refuse")


@pytest.mark.parametrize(
    ("sql", "branches"),
    [
        ("bool", [{"type": "boolean"}]),
        ("int8", [{"type": "integer"}]),
        ("float4", NUMBER),
        ("numeric(10,2)", [STRING]),
        ("date", [STRING]),
        ("timestamptz", [STRING]),
        ("uuid", [{"type": "string", "format": "uuid"}]),
        ('"public"."uuid"', [STRING]),
        ("int2[]", [{"type": "array", "items": {"oneOf": [NULL, INT2, {"type": "array"}]}}, STRING]),
        ('"public"."int2"[]', [{"type": "array", "items": {"oneOf": [NULL, STRING, {"type": "array"}]}}, STRING]),
        ("jsonb[]", [{"type": "array"}, STRING]),
    ],
)
def test_types(sql: str, branches: list[Any]) -> None:
    assert value_schema(sql, is_nullable=True) == {"oneOf": [NULL, *branches]}
    assert value_schema(sql, is_nullable=False) == (branches[0] if len(branches) == 1 else {"oneOf": branches})


def test_every_builtin_type_has_a_schema_that_others_accept() -> None:
    columns = tuple(Column(f"c{oid}", oid, -1, name, False) for oid, name in BUILTIN_NAMES.items())
    relation = Relation(7, "public", "t", ReplicaIdentity.DEFAULT, columns)
    text = json_schema(table_schema(relation, ("c23",), "t"), "shop", "refuse")
    jsonschema_rs.meta.validate(json.loads(text))
    assert len(read_schema(text).types) == len(columns)


def test_a_column_that_is_dropped_stays_in_the_schema_until_it_comes_back() -> None:
    both, one = schema_of(("a", "text"), ("b", "int8")), schema_of(("b", "int8"))
    without = succeeding(both, one)
    assert read_schema(without) == ({"id": "int4", "b": "int8"}, {"a": "text"})
    assert json.loads(without)["properties"]["a"] == {
        "oneOf": [NULL, STRING],
        "pg": {"name": "a", "type": "text", "dropped": True},
    }
    assert succeeding(without, one) == without
    assert succeeding(without, both) == both
    assert read_schema(succeeding(without, schema_of())).dropped == {"a": "text", "b": "int8"}
    jsonschema_rs.Draft7Validator(json.loads(without)).validate({"id": 1, "a": "x", "b": None})


@pytest.mark.parametrize(
    ("was", "now", "is_told_apart"),
    [
        ("text", "uuid", True),
        ("int4", "text", True),
        ("timestamp", "timestamptz", True),
        ("numeric(6,2)", "numeric(8,3)", True),
        ("text", "bytea", False),
        ("text", "jsonb", False),
        ("text", "text[]", False),
        ("bytea[]", "text[]", False),
    ],
)
def test_what_readers_would_misread(was: str, now: str, is_told_apart: bool) -> None:
    texts = schema_of(("a", was)), schema_of(("a", now))
    assert misread(*texts) == (() if is_told_apart else (f"column a was {was} and is {now}",))
    assert (misread(*reversed(texts)) == ()) is is_told_apart
    assert (misread(succeeding(texts[0], schema_of()), texts[1]) == ()) is is_told_apart, "also after it was dropped"


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    schema = json.loads(succeeding(schema_of(("a", "text")), schema_of()))
    change(schema)
    return json.dumps(schema)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("", "not JSON"),
        ("[]", "it has no pg"),
        ("true", "it has no pg"),
        (changed(lambda s: s.pop("properties")), "it has no properties"),
        (changed(lambda s: s["pg"].update(key="id")), "its pg has no key"),
        (changed(lambda s: s["properties"]["id"].pop("pg")), "property 'id' has no pg"),
        (changed(lambda s: s["properties"]["id"]["pg"].update(type=4)), "the pg of property 'id' has no type"),
        (changed(lambda s: s["properties"]["id"].update(maximum=7)), "property 'id' does not have the form"),
        (changed(lambda s: s["properties"]["a"].pop("oneOf")), "property 'a' does not have the form"),
        (changed(lambda s: s["properties"].update(b={})), "property 'b' has no pg"),
        (changed(lambda s: s.update(additionalProperties=True)), "does not describe a row"),
        (changed(lambda s: s.update(required=[])), "does not describe a row"),
        (changed(lambda s: s.update(type="array")), "does not describe a row"),
    ],
)
def test_other_schemas_are_refused(schema: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_schema(schema)


def test_a_registry_may_write_a_schema_anew() -> None:
    text = schema_of(("a", "text"))
    again = json.dumps(json.loads(text), indent=2, sort_keys=True)
    assert is_same_schema(text, again)
    assert read_schema(again) == read_schema(text)
    assert not is_same_schema(text, schema_of(("a", "uuid")))
    assert not is_same_schema(text, "no JSON")
