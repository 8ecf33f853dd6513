"""Values of a real server through the bridge's encoder, and back to the very text that the server printed."""

from __future__ import annotations

import os
import random
from typing import Any, Final

import psycopg
import pytest
from psycopg import pq

from cdc.contract.change import Column
from cdc.contract.formats.values import converter
from cdc.contract.pgtypes import BUILTIN_NAMES, sql_type
from cdc.spark.values.columns import column_text, kind_of
from tests.support.servers import Database

SEED = int(os.environ.get("SEED", "1"))
ARRAYS_PER_TYPE: Final = 120

ELEMENTS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("", "a", "NULL", "null", "a b", "a,b", "a;b", '"', "\\", "{", "}", "{1,2}", "\t", "\n\r\v\f", "é", "\x01"),
    "int4": ("0", "-1", "2147483647"),
    "int8": ("9223372036854775807", "-9007199254740993"),
    "bool": ("t", "f"),
    "float8": ("0.1", "-0", "1e20", "1e-7", "NaN", "Infinity", "-Infinity", "1.7976931348623157e308"),
    "numeric": ("1.50", "NaN", "1e30", "-0.00"),
    "inet": ("10.0.0.1", "::1/64", "192.168.0.0/16"),
    "char(4)": ("", "ab", "  a"),
    "jsonb": ("{}", "[1, [2]]", '"a b"', "1.10", '{"a": null}', "true", "null", '""'),
    "json": ('{"a" : 1,   "a": 2}', " [1] ", "null", "1.0e5", '"x"'),
    "box": ("(1,1),(0,0)", "(2.5,2),(1,1)"),
    "timestamptz": ("2026-11-20 12:13:14.5+00", "infinity"),
    "bytea": ("\\x", "\\xdeadbeef"),
}  # fmt: skip


def read(connection: psycopg.Connection[Any], expression: str, parameters: list[Any]) -> tuple[bytes, Column]:
    """The text that the output function gives, as the stream has it, and the column it would come in."""
    result = connection.pgconn.exec_params(
        f"SELECT {expression}".encode(), [each.encode() for each in parameters], result_format=pq.Format.TEXT
    )
    assert result.status == pq.ExecStatus.TUPLES_OK, result.get_error_message()
    text = result.get_value(0, 0)
    assert text is not None
    return text, Column("c", result.ftype(0), result.fmod(0), BUILTIN_NAMES[result.ftype(0)], False)


def assert_same(text: bytes, column: Column) -> None:
    json = converter(column)(text).decode()
    found = column_text(json, kind_of(sql_type(column)), json_null=True)
    assert found == text.decode(), f"SEED={SEED}: {sql_type(column)} as {json}"


def random_array(rng: random.Random, values: tuple[str, ...], depth: int, counts: list[int]) -> str:
    """An expression of an array with the same number of elements everywhere in a dimension; ``$n`` for values."""
    if depth == len(counts):
        return "NULL" if rng.random() < 0.15 else f"${rng.randrange(len(values)) + 1}"
    return "ARRAY[" + ",".join(random_array(rng, values, depth + 1, counts) for _ in range(counts[depth])) + "]"


@pytest.mark.parametrize("element", ELEMENTS)
def test_arrays_come_back_as_the_server_printed_them(database: Database, element: str) -> None:
    rng = random.Random(SEED)
    values = ELEMENTS[element]
    # Every parameter is named, so that its type is known wherever the array does not use it.
    named = ",".join(f"${i + 1}::text" for i in range(len(values)))
    with database.connect(options="-c TimeZone=UTC -c extra_float_digits=1") as connection:
        for _ in range(ARRAYS_PER_TYPE):
            counts = [rng.randint(1, 4) for _ in range(rng.choice((1, 1, 2, 3)))]
            array = random_array(rng, values, 0, counts)
            expression = f"({array}::text[])::{element}[] FROM (SELECT {named}) unused"
            assert_same(*read(connection, expression, list(values)))
        for literal in ("{}", "{NULL}"):
            assert_same(*read(connection, f"'{literal}'::{element}[]", []))
        other_bounds = f"array_fill($1::text::{element}, ARRAY[2,1], ARRAY[0,-3])"
        assert_same(*read(connection, other_bounds, [values[-1]]))


@pytest.mark.parametrize("element", ELEMENTS)
def test_scalars_come_back_as_the_server_printed_them(database: Database, element: str) -> None:
    with database.connect(options="-c TimeZone=UTC -c extra_float_digits=1") as connection:
        for value in ELEMENTS[element]:
            assert_same(*read(connection, f"$1::text::{element}", [value]))
