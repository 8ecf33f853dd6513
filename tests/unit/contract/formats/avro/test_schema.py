"""The schema of a table: its exact text, what is read from it, and which others are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from cdc.contract.change import Column
from cdc.contract.formats.avro.schema import avro_schema, read_schema
from cdc.contract.formats.avro.types import avro_type
from cdc.contract.pgtypes import BUILTIN_NAMES, sql_type
from tests.unit.contract.formats.avro.tables import NUMERIC_10_2, column, schema_of

ORDERS = (
    column("id", "int8", number=1),
    column("Größe", "numeric", NUMERIC_10_2, 3),
    column("note", "text"),
)


def test_a_schema_says_it_all() -> None:
    assert json.loads(schema_of(*ORDERS, key=("id",))) == {
        "type": "record",
        "name": "orders",
        "namespace": "shop.public",
        "pg": {"table": ["public", "orders"], "key": ["id"], "fingerprint": "13f65a066287d3ab"},
        "fields": [
            {"name": "id", "type": "long", "pg": {"name": "id", "type": "int8", "number": 1}},
            {
                "name": "Gr_uf6__udf_e",
                "type": [
                    "null",
                    {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
                    "string",
                ],
                "default": None,
                "pg": {"name": "Größe", "type": "numeric(10,2)", "number": 3},
            },
            {
                "name": "note",
                "type": ["null", "string"],
                "default": None,
                "pg": {"name": "note", "type": "text"},
            },
        ],
    }


def test_its_text_is_compact_and_always_the_same() -> None:
    text = schema_of(*ORDERS, key=("id",), beyond="refuse")
    assert text.startswith(
        '{"type":"record","name":"orders","namespace":"shop.public","pg":{"table":["public","orders"],"key":["id"],'
    )
    assert text == schema_of(*ORDERS, key=("id",), beyond="refuse")
    found = read_schema(text)
    assert avro_schema(found.table, found.bridge, beyond="refuse") == text


def test_the_table_is_restored() -> None:
    found = read_schema(schema_of(*ORDERS, key=("note", "id"), name="my-bridge"))
    assert found.bridge == "my-bridge"
    assert (found.table.namespace, found.table.name, found.table.key) == ("public", "orders", ("note", "id"))
    assert [(each.name, each.sql_type, each.number) for each in found.table.columns] == [
        ("id", "int8", 1),
        ("Größe", "numeric(10,2)", 3),
        ("note", "text", 0),
    ]
    assert [(each.is_key, each.has_text) for each in found.columns] == [(True, False), (False, True), (True, False)]


def test_spaces_and_the_order_of_members_do_not_matter() -> None:
    text = schema_of(*ORDERS, key=("id",))
    assert read_schema(json.dumps(json.loads(text), indent=2, sort_keys=True)) == read_schema(text)


@pytest.mark.parametrize(
    ("sql", "avro"),
    [
        ("bool", "boolean"),
        ("int2", "int"),
        ("int4", "int"),
        ("int8", "long"),
        ("oid", "long"),
        ("float4", "float"),
        ("float8", "double"),
        ("numeric", "string"),
        ("numeric(3,-2)", "string"),
        ("numeric(3,5)", "string"),
        ("numeric(1,0)", {"type": "bytes", "logicalType": "decimal", "precision": 1, "scale": 0}),
        ("numeric(3,3)", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 3}),
        ("date", {"type": "int", "logicalType": "date"}),
        ("time", {"type": "long", "logicalType": "time-micros"}),
        ("time(3)", {"type": "long", "logicalType": "time-micros"}),
        ("timetz", "string"),
        ("timestamp(3)", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("timestamptz", {"type": "long", "logicalType": "timestamp-micros"}),
        ("uuid", {"type": "string", "logicalType": "uuid"}),
        ("bytea", "bytes"),
        ("json", "string"),
        ("jsonb", "string"),
        ("interval day to second(3)", "string"),
        ('"char"', "string"),
        ('"public"."uuid"', "string"),
        ('"public"."date"', "string"),
        ('"public"."mood"[]', {"type": "array", "items": ["null", "string"]}),
        ('"public"."int4"[]', {"type": "array", "items": ["null", "string"]}),
        ("int4[]", {"type": "array", "items": ["null", "int"]}),
        ("uuid[]", {"type": "array", "items": ["null", {"type": "string", "logicalType": "uuid"}]}),
        ("date[]", {"type": "array", "items": ["null", {"type": "int", "logicalType": "date"}]}),
        ("int2vector", "string"),
    ],
)
def test_types(sql: str, avro: Any) -> None:
    assert avro_type(sql).schema == avro


def test_every_builtin_type_has_a_schema_that_others_accept() -> None:
    columns = [Column(f"c{oid}", oid, -1, name, False) for oid, name in BUILTIN_NAMES.items()]
    for key in ((), tuple(each.name for each in columns)):
        for text in (schema_of(*columns, key=key), schema_of(*columns, key=key, beyond="refuse")):
            fastavro.parse_schema(json.loads(text))
            assert [each.sql_type for each in read_schema(text).columns] == [sql_type(each) for each in columns]


def test_texts_are_only_where_values_may_be_beyond() -> None:
    names = ("int4", "text", "float8", "numeric", "uuid", "date", "time", "_int4", "_text")
    columns = [column(name, name) for name in names]
    fields = json.loads(schema_of(*columns, key=("date", "int4")))["fields"]
    assert {field["name"] for field in fields if isinstance(field["type"], list) and len(field["type"]) == 3} == {
        "time",
        "_int4",
        "_text",
    }
    assert [field["type"] for field in fields if field["name"] in ("date", "int4")] == [
        "int",
        [{"type": "int", "logicalType": "date"}, "string"],
    ]
    for field in json.loads(schema_of(*columns, beyond="refuse"))["fields"]:
        assert (len(field["type"]), field["type"][0], field["default"]) == (2, "null", None)


def replaced(change: Callable[[dict[str, Any]], object]) -> str:
    schema = json.loads(schema_of(*ORDERS, key=("id",)))
    change(schema)
    return json.dumps(schema)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("", "not JSON"),
        ('"long"', "the record has no pg"),
        ("[]", "the record has no pg"),
        ('{"type":"record","name":"a","fields":[]}', "the record has no pg"),
        (replaced(lambda s: s.pop("namespace")), "namespace"),
        (replaced(lambda s: s.update(namespace="shop")), "namespace"),
        (replaced(lambda s: s.update(namespace="shop.other")), "member 'namespace'"),
        (replaced(lambda s: s.update(namespace="_u110000_.public")), r"\w"),
        (replaced(lambda s: s.update(name="Orders")), "member 'name'"),
        (replaced(lambda s: s.update(aliases=["x"])), "member 'aliases'"),
        (replaced(lambda s: s.update(type="error")), "member 'type'"),
        (replaced(lambda s: s["pg"].update(more=1)), "member 'pg'"),
        (replaced(lambda s: s["pg"].update(table=["public"])), r"pg\.table"),
        (replaced(lambda s: s["pg"].update(table=["public", 1])), r"pg\.table"),
        (replaced(lambda s: s["pg"].update(key="id")), "key"),
        (replaced(lambda s: s["pg"].pop("fingerprint")), "fingerprint"),
        (replaced(lambda s: s.update(fields={})), "fields"),
        (replaced(lambda s: s["fields"].append("x")), "field 4 has no pg"),
        (replaced(lambda s: s["fields"][0].pop("pg")), "field 1 has no pg"),
        (replaced(lambda s: s["fields"][0]["pg"].update(number="1")), "the pg of field 1 has no number"),
        (replaced(lambda s: s["fields"][0]["pg"].update(number=True)), "the pg of field 1 has no number"),
        (replaced(lambda s: s["fields"][0]["pg"].update(type="int4")), "field 'id'"),
        (replaced(lambda s: s["fields"][0].update(type="int")), "field 'id'"),
        (replaced(lambda s: s["fields"][2].update(name="Note")), "field 'Note'"),
        (replaced(lambda s: s["fields"][2].update(default="")), "field 'note'"),
        (replaced(lambda s: s["fields"][2].pop("default")), "field 'note'"),
        (replaced(lambda s: s["fields"][1]["type"][1].update(scale=3)), "field 'Gr_uf6__udf_e'"),
        (replaced(lambda s: s["fields"][1]["type"].reverse()), "field 'Gr_uf6__udf_e'"),
    ],
)
def test_other_schemas_are_refused(schema: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_schema(schema)


def test_a_schema_in_which_only_some_fields_hold_texts_is_refused() -> None:
    schema = json.loads(schema_of(column("a", "date"), column("b", "date")))
    schema["fields"][1]["type"].pop()
    with pytest.raises(ValueError, match="only some of the fields hold texts"):
        read_schema(json.dumps(schema))
