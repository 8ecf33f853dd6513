"""Which columns of SQLite keep a source type's values, and what becomes of the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.sink.sql.sqlite import SqliteDialect

DIALECT = SqliteDialect(Path("shop.db"))


def form(sql_type: str, stored: str | None = None, *, of_key: int = 0) -> str | None:
    found = DIALECT.form(sql_type, of_key=of_key, stored=stored)
    return found and found.sql


@pytest.mark.parametrize(
    ("sql_type", "made"),
    [
        ("int8", "INTEGER"),
        ("bool", "INTEGER"),
        ("float8", "ANY"),
        ("bytea", "BLOB"),
        ("numeric(10,2)", "TEXT"),
        ("int4[]", "TEXT"),
        ('"public"."mood"', "TEXT"),
    ],
)
def test_a_column_is_kept_if_it_keeps_every_value(sql_type: str, made: str) -> None:
    assert [form(sql_type, each) for each in (None, made, "ANY")] == [made] * 3
    assert form("int2", "INT") == "INTEGER"


@pytest.mark.parametrize(
    ("sql_type", "stored"),
    [
        ("float8", "REAL"),  # -0 would become 0
        ("int8", "REAL"),
        ("int8", "BLOB"),
        ("text", "INTEGER"),
        ("timestamptz", "BLOB"),
        ("bytea", "INTEGER"),
    ],
)
def test_a_column_that_changes_or_refuses_values_is_refused(sql_type: str, stored: str) -> None:
    assert form(sql_type, stored) is None


def test_text_holds_everything_and_tells_all_keys_apart() -> None:
    assert {form(each, "TEXT") for each in ("int8", "bool", "float8", "bytea", "text")} == {"TEXT"}
    assert form("float8", of_key=1) == "TEXT"


@pytest.mark.parametrize(
    ("sql_type", "text", "value"),
    [
        ("bool", "true", 1),
        ("int8", "-9223372036854775808", -(1 << 63)),
        ("float8", "NaN", "NaN"),
        ("float8", "-Infinity", float("-inf")),
        ("bytea", "\\x00ff", b"\x00\xff"),
        ("bool[]", "{true,NULL,false}", "{t,NULL,f}"),
        ("float8[]", '{1.5,"NaN",NULL}', "{1.5,NaN,NULL}"),
    ],
)
def test_a_text_becomes_the_value_that_the_column_keeps(sql_type: str, text: str, value: object) -> None:
    found = DIALECT.form(sql_type, of_key=0)
    assert found is not None
    assert found.values([text, "\0N"]) == [value, None]


@pytest.mark.parametrize(
    ("sql_type", "text"), [("bool", "maybe"), ("int8", "9223372036854775808"), ("float8", "x"), ("bytea", "abc")]
)
def test_a_text_that_is_no_such_value_is_refused(sql_type: str, text: str) -> None:
    found = DIALECT.form(sql_type, of_key=0)
    assert found is not None
    with pytest.raises(ValueError, match=r".+"):
        found.values([text])
