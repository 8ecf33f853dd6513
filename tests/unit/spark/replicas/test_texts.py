"""What a driver returns, as PostgreSQL prints it and as the topic has it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from cdc.contract.jobspec.deployment import ColumnKind, JobColumn, JobTable
from cdc.spark.replicas.texts import StoredRows, hashed

NEXT = struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", 0.1))[0] + 1))[0]
AS_REAL = struct.unpack("<f", struct.pack("<f", 0.1))[0]


def column(name: str, sql_type: str, kind: ColumnKind, delimiter: str = ",") -> JobColumn:
    return JobColumn(name=name, sql_type=sql_type, kind=kind, is_array=sql_type.endswith("[]"), delimiter=delimiter)


def stored(*columns: JobColumn, key: Sequence[str] = ()) -> StoredRows:
    return StoredRows(
        JobTable(namespace="n", name="t", topic="x", key=tuple(key or [columns[0].name]), columns=columns)
    )


def value_of(each: JobColumn, text: str | None) -> str:
    """The member's JSON, by the key of a table whose key it is."""
    return stored(each).key([text]).removeprefix('{"v":').removesuffix("}")


@pytest.mark.parametrize(
    ("sql_type", "kind", "value", "text"),
    [
        ("bool", "bool", 1, "t"), ("bool", "bool", 0, "f"), ("bool", "bool", True, "t"), ("bool", "bool", "false", "f"),
        ("bool", "bool", 2, "2"), ("int4", "number", -7, "-7"), ("int8", "number", 2**63 - 1, "9223372036854775807"),
        ("float8", "number", 0.1, "0.1"), ("float8", "number", NEXT, "0.10000000000000002"),
        ("float8", "number", 1e15, "1e+15"), ("float8", "number", -0.0, "-0"), ("float8", "number", "NaN", "NaN"),
        ("float8", "number", float("-inf"), "-Infinity"), ("float8", "number", 3.0, "3"),
        ("float4", "number", 0.1, "0.1"), ("float4", "number", AS_REAL, "0.1"),
        ("float4", "number", 16777216.0, "1.6777216e+07"),
        ("float4", "number", NEXT, "0.10000000000000002"), ("float4", "number", 1e300, "1e+300"),
        ("float4", "number", float("nan"), "NaN"), ("float4", "number", float("inf"), "Infinity"),
        ("numeric(9,7)", "text", Decimal("0.0000001"), "0.0000001"), ("numeric", "text", "1.50", "1.50"),
        ("bytea", "text", b"\x00\xff", "\\x00ff"), ("bytea", "text", "\\x00", "\\x00"), ("text", "text", None, None),
    ],
)  # fmt: skip
def test_a_value_has_the_text_that_postgresql_prints(
    sql_type: str, kind: ColumnKind, value: Any, text: str | None
) -> None:
    assert stored(column("v", sql_type, kind)).texts([value]) == [text]


@pytest.mark.parametrize(
    ("sql_type", "kind", "text", "json"),
    [
        ("bool", "bool", "t", "true"), ("bool", "bool", "2", '"2"'), ("int4", "number", "7", "7"),
        ("float8", "number", "1.5e-07", "1.5e-07"), ("float8", "number", "NaN", '"NaN"'),
        ("float4", "number", "-Infinity", '"-Infinity"'),
        ("text", "text", 'é"\\\n\x01\x7f', '"é\\"\\\\\\n\\u0001\x7f"'),
        ("jsonb", "json", '{"a": 1.10}', '{"a": 1.10}'), ("text", "text", None, "null"),
        ("int4[]", "number", "{}", "[]"), ("int4[]", "number", "{{1,NULL},{3,4}}", "[[1,null],[3,4]]"),
        ("int4[]", "number", "[0:1]={1,2}", '"[0:1]={1,2}"'), ("float8[]", "number", "{0.1,NaN}", '[0.1,"NaN"]'),
        ("bool[]", "bool", "{t,f,NULL}", "[true,false,null]"), ("text[]", "text", "{}", "[]"),
        ("text[]", "text", '{"",NULL,"NULL",a b,"c,\\"{\\\\"}', '["",null,"NULL","a b","c,\\"{\\\\"]'),
        ("text[]", "text", '{"a\nb"}', '["a\\nb"]'), ("oid[]", "number", "{4000000000}", "[4000000000]"),
        ("json[]", "json", '{"{\\"a\\": [1]}",1.10,NULL}', '[{"a": [1]},1.10,null]'),
        ("json[]", "json", '{"null",1}', '"{\\"null\\",1}"'), ("json[]", "json", "{{1},{2}}", '"{{1},{2}}"'),
    ],
)  # fmt: skip
def test_a_text_has_the_form_of_the_topic(sql_type: str, kind: ColumnKind, text: str | None, json: str) -> None:
    assert value_of(column("v", sql_type, kind), text) == json


def test_boxes_are_divided_by_semicolons() -> None:
    boxes = column("v", "box[]", "text", ";")
    assert value_of(boxes, "{(1,1),(0,0);(2,2),(0,0)}") == '["(1,1),(0,0)","(2,2),(0,0)"]'


def test_hashes_are_those_of_key_and_value_with_the_mark_of_each_document_null() -> None:
    rows = stored(
        column("a", "int4", "number"), column("d", "jsonb", "json"), column('q"', "text", "text"), key=['q"', "a"]
    )
    texts = rows.texts([1, "null", "x"])
    key, value = '{"q\\"":"x","a":1}', '{"a":1,"d":null,"q\\"":"x"}'
    assert rows.key(texts) == key
    assert rows.hashes(texts) == (hashed(key), hashed(value + "1,"))
    assert rows.hashes(rows.texts([1, None, "x"])) == (hashed(key), hashed(value))
    assert hashed(key) == int(hashlib.md5(key.encode()).hexdigest()[:15], 16)
