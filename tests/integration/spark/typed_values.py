"""A table with a column of every type, and its values in typed columns beside what the source prints."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql

from tests.support.type_catalogue import CUSTOM_TYPES, VALUE_TYPES


def as_text(value: Any, sql_type: str) -> Any:
    """A value out of Parquet as PostgreSQL prints it; of an array the elements. Not for floats."""
    if isinstance(value, list):
        return [None if each is None else as_text(each, sql_type) for each in value]
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes | bytearray):
        return "\\x" + value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        moment = value.isoformat(" ")
        return (moment.rstrip("0") if "." in moment else moment) + ("+00" if "tz" in sql_type else "")
    if isinstance(value, date):
        return value.isoformat()
    return None if value is None else str(value)


def as_single(number: float) -> float:
    """What is left of a number in four bytes."""
    (single,) = struct.unpack("f", struct.pack("f", number))
    return float(single)


def printed(connection: psycopg.Connection[Any], name: str, sql_type: str) -> dict[int, Any]:
    """The column as the source has it: text, an array's elements as text, floats as numbers."""
    column = sql.Identifier(name)
    if sql_type.endswith("[]") and not sql_type.startswith("json"):
        expression = sql.SQL("to_json({}::text[])").format(column)
        if sql_type.startswith("boolean"):
            expression = sql.SQL(
                "CASE WHEN {0} IS NOT NULL THEN to_json(array(SELECT left(e::text, 1) FROM unnest({0}) e)) END"
            ).format(column)
    elif sql_type in ("real", "double precision"):
        expression = sql.SQL("{}").format(column)
    else:
        # A cast of char(n) to text would take its blanks away; a composite with a null in it is not "not null".
        expression = sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN format('%s', {0}) END").format(column)
    query = sql.SQL("SELECT id, {} FROM matrix ORDER BY id").format(expression)
    return dict(connection.execute(query).fetchall())


def make_matrix(connection: psycopg.Connection[Any]) -> int:
    """Makes ``matrix`` with a column of every type, named like it; returns how many rows it has."""
    count = max(map(len, VALUE_TYPES.values()))
    connection.execute(CUSTOM_TYPES)
    columns = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(name)) for name in VALUE_TYPES)
    connection.execute(sql.SQL("CREATE TABLE matrix (id int PRIMARY KEY, {})").format(columns))
    for number in range(count):
        values = sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Literal(each[number % len(each)]), sql.SQL(name))
            for name, each in VALUE_TYPES.items()
        )
        connection.execute(sql.SQL("INSERT INTO matrix VALUES ({}, {})").format(sql.Literal(number), values))
    connection.execute("INSERT INTO matrix (id) VALUES (9999)")
    return count + 1


def differences(
    connection: psycopg.Connection[Any], kinds: Mapping[str, str], rows: Mapping[int, Any]
) -> tuple[list[tuple[str, int, object, object]], int]:
    """What differs between typed rows and ``matrix``, and how many values were beyond their types.

    Args:
        connection: to the source.
        kinds: Spark's type of each column.
        rows: by id.
    """
    beyond_count, different = 0, list[tuple[str, int, object, object]]()
    for name in VALUE_TYPES:
        kind = kinds[name]
        texts = printed(connection, name, "text")
        wanted = printed(connection, name, {"texts": "text[]"}.get(name, name) if kind != "string" else "text")
        for number, row in rows.items():
            beyond = dict(row["_beyond"] or {})
            if name in beyond:
                beyond_count += 1
                assert row[name] is None
                assert not kind.startswith("array") or texts[number].startswith(("{{", "[")), texts[number]
                if not kind.startswith("array"):
                    assert beyond[name] == texts[number]
            elif kind == "string" and name.startswith("jsonb["):
                assert (row[name] is None) == (texts[number] is None)
            elif isinstance(row[name], float):
                single = as_single(wanted[number]) if name == "real" else wanted[number]
                if repr(row[name]) != repr(single):
                    different.append((name, number, row[name], single))
            elif name == "double precision[]":
                floats = wanted[number] and [None if each is None else float(each) for each in wanted[number]]
                if repr(row[name]) != repr(floats):
                    different.append((name, number, row[name], floats))
            elif as_text(row[name], name) != wanted[number]:
                different.append((name, number, row[name], wanted[number]))
    return different, beyond_count
