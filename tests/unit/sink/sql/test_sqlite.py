"""Which columns of SQLite keep a source type's values, and what becomes of the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.sink.sql.sqlite import SqliteDialect

DIALECT = SqliteDialect(Path("shop.db"))


def form(sql_type: str, stored: str | None = None, *, is_key: bool = False) -> str | None:
    found = DIALECT.form(sql_type, is_key=is_key, stored=stored)
    return found and found.sql


@pytest.mark.parametrize(
    ("sql_type", "made", "kept_by"),
    [
        ("int8", "INTEGER", ["INTEGER", "bigint", "DECIMAL(10,0)", "BOOLEAN", "", "ANY"]),
        ("bool", "INTEGER", ["INTEGER", "BOOLEAN"]),
        ("float8", "ANY", ["", "ANY"]),
        ("bytea", "BLOB", ["BLOB", ""]),
        ("numeric(10,2)", "TEXT", ["TEXT", "varchar(20)", ""]),
        ("int4[]", "TEXT", ["clob"]),
        ('"public"."mood"', "TEXT", ["TEXT"]),
    ],
)
def test_a_column_is_kept_if_it_keeps_every_value(sql_type: str, made: str, kept_by: list[str]) -> None:
    assert form(sql_type) == made
    assert [form(sql_type, each) for each in kept_by] == [made] * len(kept_by)


@pytest.mark.parametrize(
    ("sql_type", "stored"),
    [
        ("float8", "REAL"),  # -0 would become 0
        ("float8", "NUMERIC"),
        ("int8", "REAL"),
        ("int8", "BLOB"),  # which a STRICT table enforces
        ("numeric", "NUMERIC"),
        ("text", "INTEGER"),
        ("timestamptz", "DATETIME"),
        ("bytea", "INTEGER"),
    ],
)
def test_a_column_that_changes_values_is_refused(sql_type: str, stored: str) -> None:
    assert form(sql_type, stored) is None


def test_text_holds_everything_and_tells_all_keys_apart() -> None:
    assert {form(each, "TEXT") for each in ("int8", "bool", "float8", "bytea", "text")} == {"TEXT"}
    assert form("float8", is_key=True) == "TEXT"


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
    found = DIALECT.form(sql_type, is_key=False)
    assert found is not None
    assert found.values([text, "\0N"]) == [value, None]


@pytest.mark.parametrize(
    ("sql_type", "text"), [("bool", "maybe"), ("int8", "9223372036854775808"), ("float8", "x"), ("bytea", "abc")]
)
def test_a_text_that_is_no_such_value_is_refused(sql_type: str, text: str) -> None:
    found = DIALECT.form(sql_type, is_key=False)
    assert found is not None
    with pytest.raises(ValueError, match=r".+"):
        found.values([text])
