"""Which columns a replica table has, and of which types."""

from __future__ import annotations

import pytest

from cdc.contract.record import SchemaColumn, TableSchema
from cdc.sink.definitions import wanted_columns
from cdc.sink.postgres.tables import takes_unchanged


def schema(name: str, namespace: str = "public", **columns: str) -> TableSchema:
    listed = tuple(SchemaColumn(*each) for each in (columns or {"id": "int4"}).items())
    return TableSchema("f" * 16, namespace, name, f"n.{namespace}.{name}", ("id",), listed)


def test_wanted_columns_are_a_union_and_the_newest_type_counts() -> None:
    first = schema("t", id="int4", old="text", v="int4")
    second = schema("t", id="int8", v="text", new="jsonb")
    assert wanted_columns([first, second]) == {"id": "int8", "v": "text", "new": "jsonb", "old": "text"}


@pytest.mark.parametrize(
    ("actual", "wanted", "taken"),
    [
        ("integer", "integer", True),
        ("bigint", "integer", True),
        ("integer", "bigint", False),
        ("numeric", "bigint", True),
        ("numeric(10,0)", "bigint", False),
        ("double precision", "real", False),  # 1000000 and 1e+06
        ("double precision[]", "real[]", False),
        ("real", "double precision", False),
        ("text", "jsonb", True),
        ("jsonb", "json", False),
        ("numeric", "numeric(12,2)", True),
        ("numeric(14,2)", "numeric(12,2)", False),
        ("numeric(12,2)", "numeric(12,4)", False),
        ("character varying", "character varying(10)", True),
        ("character varying(20)", "character varying(10)", True),
        ("character varying(9)", "character varying(10)", False),
        ("character varying(10)", "text", False),
        ("timestamp with time zone", "timestamp(3) with time zone", True),
        ("timestamp(3) with time zone", "timestamp with time zone", False),
        ("timestamp without time zone", "timestamp with time zone", False),
        ("text[]", "character varying(10)[]", True),
        ("bigint[]", "integer[]", True),
        ("text", "integer[]", True),
        ("text", "boolean", False),  # true and t
        ("text[]", "boolean[]", False),
    ],
)
def test_types_that_take_each_other(actual: str, wanted: str, taken: bool) -> None:
    assert takes_unchanged(actual, wanted) is taken
