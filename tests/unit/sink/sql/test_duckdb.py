"""Which columns of DuckDB keep a source type's values, and what becomes of the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.sink.sql.duckdb import DuckdbDialect

DIALECT = DuckdbDialect(Path("shop.duckdb"))


def form(sql_type: str, stored: str | None = None, *, of_key: int = 0) -> str | None:
    found = DIALECT.form(sql_type, of_key=of_key, stored=stored)
    return found and found.sql


@pytest.mark.parametrize(
    ("sql_type", "made"),
    [
        ("int2", "SMALLINT"),
        ("oid", "BIGINT"),
        ("numeric(10,2)", "DECIMAL(10,2)"),
        ("numeric(38,0)", "DECIMAL(38,0)"),
        ("numeric(39,0)", "VARCHAR"),
        ("numeric(3,5)", "VARCHAR"),
        ("numeric(5,-2)", "VARCHAR"),
        ("numeric", "VARCHAR"),
        ("numeric(10,2)[]", "VARCHAR"),
        ("varchar(10)", "VARCHAR"),
        ("timestamptz(3)", "TIMESTAMP WITH TIME ZONE"),
        ("uuid", "VARCHAR"),
    ],
)
def test_a_column_has_the_type_that_holds_every_value_as_printed(sql_type: str, made: str) -> None:
    assert form(sql_type) == made
    assert form(sql_type, made) == made
    assert form(sql_type, "VARCHAR") == "VARCHAR"


@pytest.mark.parametrize(
    ("sql_type", "stored", "kept"),
    [
        ("int2", "BIGINT", "BIGINT"),
        ("int8", "INTEGER", None),
        ("numeric(10,2)", "DECIMAL(12,2)", "DECIMAL(12,2)"),
        ("numeric(10,2)", "DECIMAL(12,3)", None),
        ("numeric(10,2)", "DOUBLE", None),
        ("text", "BLOB", None),
        ("date", "TIMESTAMP", None),
        ("float4", "DOUBLE", None),
    ],
)
def test_a_wider_column_is_kept_and_one_that_prints_otherwise_is_not(
    sql_type: str, stored: str, kept: str | None
) -> None:
    assert form(sql_type, stored) == kept


def test_a_floating_point_key_is_text() -> None:
    assert form("float8", of_key=1) == "VARCHAR"


@pytest.mark.parametrize(
    ("sql_type", "text", "told"),
    [
        ("date", "4713-01-01 BC", "4713-01-01 (BC)"),
        ("timestamp", "4713-12-31 00:00:00.5 BC", "4713-12-31 (BC) 00:00:00.5"),
        ("timestamptz", "4714-12-31 23:59:59+00 BC", "4714-12-31 (BC) 23:59:59+00"),
        ("timestamptz", "-infinity", "-infinity"),
        ("bytea", "\\x00ff", "00ff"),
        ("bool[]", "{true,NULL}", "{t,NULL}"),
    ],
)
def test_a_text_becomes_one_that_duckdb_reads_as_the_same_value(sql_type: str, text: str, told: str) -> None:
    found = DIALECT.form(sql_type, of_key=0)
    assert found is not None
    assert found.values([text, "\0N"]) == [told, None]


@pytest.mark.parametrize(
    ("sql_type", "text"),
    [
        ("int4", "1.5"),  # a cast would make 2 of it
        ("numeric(4,1)", "1.25"),
        ("numeric(4,1)", "NaN"),
        ("bool", "t"),
        ("timestamp", "2026-01-01 00:00:00+02"),
        ("timestamptz", "2026-01-01 00:00:00"),
        ("bytea", "abc"),
    ],
)
def test_a_text_that_a_cast_would_change_is_refused(sql_type: str, text: str) -> None:
    found = DIALECT.form(sql_type, of_key=0)
    assert found is not None
    with pytest.raises(ValueError, match="make the replica's column VARCHAR"):
        found.values([text])
