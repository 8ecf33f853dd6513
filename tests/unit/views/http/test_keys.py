"""Keys as URLs and JSON spell them → values."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.base.web.problem import Problem
from cdc.views.query.keys import from_json, from_path, from_query, leading
from cdc.views.table.facts import KeyColumn, TableFacts


def table(*types: str) -> TableFacts:
    key = tuple(KeyColumn(f"k{place}", sql_type) for place, sql_type in enumerate(types))
    return TableFacts(number=1, name="public.t", topic="t", key=key, columns=key)


TEXTS = TableFacts(number=1, name="configs", topic="configs", key_kind="string")


@pytest.mark.parametrize(
    ("types", "path", "values"),
    [
        (["int8"], b"-9223372036854775808", (-(2**63),)),
        (["int2"], b"007", (7,)),
        (["bool"], b"true", (True,)),
        (["float8"], b"1e3", (1000.0,)),
        (["text"], b"%C3%BC%2F%25%20+", ("ü/% +",)),
        (["uuid"], b"7f2d1c6e-0000-4000-8000-000000000001", ("7f2d1c6e-0000-4000-8000-000000000001",)),
        (["numeric(12,2)"], b"1.50", ("1.50",)),
        (["timestamptz"], b"2026-03-29T12:00:00Z", ("2026-03-29 12:00:00+00",)),
        (["timestamptz"], b"2026-03-29T14:00:00.50+02:00", ("2026-03-29 12:00:00.5+00",)),
        (["numeric(12,2)"], b"1", ("1.00",)),
        (["char(5)"], b"ab", ("ab   ",)),
        (["uuid"], b"7F2D1C6E000040008000000000000001", ("7f2d1c6e-0000-4000-8000-000000000001",)),
        (["float4"], b"0.10000000149", (0.1,)),
        (["bool"], b"yes", (True,)),
        (["bytea"], b"%5CxFF", ("\\xff",)),
        (["int4[]"], b"[1,2]", ([1, 2],)),
        (["text", "int4"], b"eu/7", ("eu", 7)),
        (["text", "text"], b"a/...", ("a", "...")),
    ],
)
def test_a_path(types: list[str], path: bytes, values: tuple[Any, ...]) -> None:
    found = from_path(table(*types), path)
    assert found == values
    assert [type(each) for each in found] == [type(each) for each in values]


@pytest.mark.parametrize(
    ("types", "path", "words"),
    [
        (["int8"], b"9223372036854775808", "write a whole number"),
        (["text"], b"", "rows?key=%7B%22k0%22%3A%22%22%7D"),
        (["text", "int4"], b"%2E./7", "rows?key=%7B%22k0%22%3A%22..%22%2C%22k1%22%3A7%7D"),
        (["int8"], b"1_000", "write a whole number"),
        (["int8"], "١".encode(), "write a whole number"),
        (["int4"], b"2147483648", "from -2147483648 to 2147483647; a valid value is 7."),
        (["bool"], b"o", "write true or false"),
        (["float8"], b"much", "write a number"),
        (["float8"], b"1_5", "write a number; a valid value is 1.5."),
        (["float8"], "١".encode(), "write a number"),
        (["float4"], b"1e39", "out of range for a real"),
        (["numeric(12,2)"], b"1_5", "write a number"),
        (["numeric(12,2)"], b"1.005", "is not rounded; a valid value is"),
        (["uuid"], b"7f2d", "write 32 hexadecimal digits; a valid value is"),
        (["date"], b"2026-02-30", "the calendar has no such day"),
        (["timestamp"], b"2026-01-01T00:00:00+02", "leave the offset out"),
        (["text"], b"a%00", "cannot hold a NUL"),
        (["int4[]"], b"1,2", "write it as JSON"),
        (["int8"], b"x" * 500, "…: write a whole number"),
    ],
)
def test_a_path_that_is_no_key(types: list[str], path: bytes, words: str) -> None:
    with pytest.raises(Problem) as caught:
        from_path(table(*types), path)
    assert caught.value.kind == "malformed-key"
    assert words in caught.value.detail
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("sql_type", "value"), [("int8", 1), ("bool", False), ("float4", 2.5), ("text", "x"), ("jsonb", {"a": 1})]
)
def test_json(sql_type: str, value: Any) -> None:
    assert from_json(table(sql_type), {"k0": value}) == (value,)


@pytest.mark.parametrize(
    ("sql_type", "value", "found"),
    [
        ("uuid", "7F2D1C6E-0000-4000-8000-000000000001", "7f2d1c6e-0000-4000-8000-000000000001"),
        ("numeric(10,2)", "1", "1.00"),
        ("timestamptz", "2026-01-01T01:00:00+01:00", "2026-01-01 00:00:00+00"),
        ("float4", 16777217, 16777216.0),
    ],
)
def test_json_spelled_otherwise(sql_type: str, value: Any, found: Any) -> None:
    assert from_json(table(sql_type), {"k0": value}) == (found,)


def test_whole_numbers_are_floats_where_the_column_is() -> None:
    [value] = from_json(table("float8"), {"k0": 2})
    assert type(value) is float


@pytest.mark.parametrize(
    ("sql_type", "value"),
    [
        ("int8", "1"),
        ("int8", True),
        ("int8", 2**63),
        ("int2", 40000),
        ("bool", 1),
        ("bool", "t"),
        ("float8", "x"),
        ("text", 1),
        ("text", None),
    ],
)
def test_json_of_another_type(sql_type: str, value: Any) -> None:
    with pytest.raises(Problem, match=rf"public\.t\.k0 is {sql_type}, not"):
        from_json(table(sql_type), {"k0": value})


def test_keys_that_are_no_objects_are_their_text() -> None:
    assert from_path(TEXTS, b"a%2Fb") == from_query(TEXTS, "a/b") == from_json(TEXTS, "a/b") == ("a/b",)
    with pytest.raises(Problem, match=r"Write /v1/tables/configs/rows/\{key\}, and %2F for a /"):
        from_path(TEXTS, b"a/b")


@pytest.mark.parametrize(
    ("types", "prefix", "found"),
    [
        (["text", "int4"], "eu", ((), "eu")),
        (["text", "int4"], "eu/", (("eu",), None)),
        (["text", "int4"], "eu/7", (("eu", 7), None)),
        (["text", "text"], "eu/a", (("eu",), "a")),
        (["int4", "text"], "7", ((7,), None)),
        (["text", "int4"], "a%2Fb/", (("a/b",), None)),
    ],
)
def test_how_keys_begin(types: list[str], prefix: str, found: Any) -> None:
    assert leading(table(*types), prefix) == found
