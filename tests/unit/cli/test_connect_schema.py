"""The connector that `cdc connect-schema` prints, and the columns that it warns of."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc.base.errors import ConfigError
from cdc.cli.connect_schema_command import connector, damages
from cdc.contract.record import ColumnForm, DebeziumModes, SchemaColumn, TableSchema

TYPES = {
    "region": "text",
    "id": "int8",
    "price": "numeric(12,2)",
    "paid": "bool",
    "ratio": "float8",
    "note": "jsonb",
    "tags": "text[]",
    "rates": "float4[]",
    "state": '"public"."mood"',
}
TABLE = TableSchema(
    "f" * 16,
    "public",
    "orders",
    "shop.public.orders",
    ("id", "region"),
    tuple(map(SchemaColumn, TYPES, TYPES.values())),
)


def fields(config: dict[str, str], part: str) -> dict[str, Any]:
    schema = json.loads(config[f"{part}.converter.schema.content"])
    return {each.pop("field"): each for each in schema["fields"]}


def test_a_connector_has_the_schema_of_key_and_value() -> None:
    printed = connector(TABLE)
    config = printed["config"]
    assert (printed["name"], config["topics"]) == ("shop.public.orders", "shop.public.orders")
    assert config["collection.name.format"] == "public.orders"
    assert config["primary.key.fields"] == "id,region"
    assert fields(config, "key") == {
        "id": {"type": "int64", "optional": False},
        "region": {"type": "string", "optional": False},
    }
    value = fields(config, "value")
    assert list(value) == list(TYPES)
    assert {name: each["type"] for name, each in value.items()} == {
        "region": "string", "id": "int64", "price": "string", "paid": "boolean", "ratio": "double", "note": "string",
        "tags": "array", "rates": "array", "state": "string",
    }  # fmt: skip
    assert value["rates"]["items"] == {"type": "float", "optional": True}
    assert config["consumer.override.isolation.level"] == "read_committed"
    assert "stringtype=unspecified" in config["connection.url"]
    assert all(isinstance(each, str) for each in config.values())


@pytest.mark.parametrize(
    ("table", "damaged"),
    [
        (replace(TABLE, is_connects=True), []),
        (replace(TABLE, envelope=DebeziumModes(schemas=True)), ["ratio", "rates"]),
    ],
)
def test_values_with_their_schema_need_only_that_of_the_key(table: TableSchema, damaged: list[str]) -> None:
    config = connector(table)["config"]
    assert "value.converter.schema.content" not in config
    assert config["value.converter.schemas.enable"] == "true"
    assert list(fields(config, "key")) == ["id", "region"]
    assert [name for name, _ in damages(table)] == damaged


def test_events_without_their_schema_are_refused() -> None:
    with pytest.raises(ConfigError, match="without their schema"):
        connector(replace(TABLE, envelope=DebeziumModes()))


def test_forms_change_what_the_converter_damages() -> None:
    forms: dict[str, ColumnForm] = {"price": "number", "note": "string"}
    table = replace(TABLE, columns=tuple(replace(each, form=forms.get(each.name, "")) for each in TABLE.columns))
    found = dict(damages(table))
    assert "note" not in found
    assert "arrives as NULL" in found["price"]


def test_columns_that_the_converter_damages_are_named() -> None:
    assert [(name, text.partition(":")[0]) for name, text in damages(TABLE)] == [
        ("ratio", "float8"),
        ("note", "jsonb"),
        ("tags", "text[]"),
        ("rates", "float4[]"),
        ("rates", "float4[]"),
    ]
