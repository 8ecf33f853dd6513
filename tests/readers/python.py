"""Readers in Python: confluent-kafka as docs/readers.md has it, and what pandas and DuckDB make of its rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb
import msgspec
import pandas  # type: ignore[import-untyped]
import pyarrow

from tests.architecture.pages import page
from tests.readers.fed import Fed
from tests.readers.table import COLUMNS, Form

_FOLD, _AVRO = page("docs/readers.md").fences("python")[:2]

_DOCUMENTS: Final = msgspec.json.Encoder(decimal_format="number")

_DUCKDB_TYPES: Final = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "numeric(12,2)": "DECIMAL(12, 2)",
    "numeric(6,3)": "DECIMAL(6, 3)",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "uuid": "UUID",
    "jsonb": "JSON",
    "integer[]": "INTEGER[]",
    "text[]": "VARCHAR[]",
}
"""As somebody would declare them; the rest is text."""


def confluent_kafka(fed: Fed, _directory: Path) -> Iterator[str]:
    """The dictionaries of docs/readers.md, as they are."""
    return _lines(_folded(fed), fed.value_format)


def in_pandas(fed: Fed, _directory: Path) -> Iterator[str]:
    """The same rows in a data frame whose columns have types."""
    frame = pandas.DataFrame(_folded(fed), columns=list(COLUMNS), dtype=object)
    for name, column in COLUMNS.items():
        if not column.is_array:
            frame[name] = _series(frame[name], column.form, fed.value_format)
    rows = frame.astype(object).to_dict("records")
    return _lines(({name: _or_none(value) for name, value in row.items()} for row in rows), fed.value_format)


def in_duckdb(fed: Fed, directory: Path) -> Iterator[str]:
    """The same rows in a table of DuckDB: JSON through a file, Avro through Arrow."""
    types = {name: _DUCKDB_TYPES.get(column.sql_type, "VARCHAR") for name, column in COLUMNS.items()}
    database = duckdb.connect()
    database.sql("SET timezone = 'UTC'")
    if fed.value_format == "json":
        file = directory / "rows.jsonl"
        file.write_bytes(b"".join(row + b"\n" for row in _folded(fed, row=bytes)))
        declared = ", ".join(f"{name}: '{each}'" for name, each in types.items())
        database.sql(f"CREATE TABLE matrix AS FROM read_json('{file}', columns = {{{declared}}})")
    else:
        arrow = pyarrow.Table.from_pylist([{name: row.get(name) for name in COLUMNS} for row in _folded(fed)])
        columns = ", ".join(f"{name}::{'BLOB' if name == 'raw' else each} AS {name}" for name, each in types.items())
        database.register("arrow", arrow)
        database.sql(f"CREATE TABLE matrix AS SELECT {columns} FROM arrow")
    # Its texts, because DuckDB's own types for Python end at the year 9999, and have no infinity
    shown = ", ".join(
        f"{name}::VARCHAR[]" if column.is_array else name if column.form is Form.BOOLEAN else f"{_shown(fed, name)}"
        for name, column in COLUMNS.items()
    )
    rows = database.sql(f"SELECT {shown} FROM matrix").fetchall()
    database.close()
    return (json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows)


def _shown(fed: Fed, name: str) -> str:
    if name == "raw" and fed.value_format != "json":
        return "'\\x' || lower(hex(raw))"
    return f"{name}::VARCHAR"


def _folded(fed: Fed, row: Callable[[bytes], Any] | None = None) -> list[Any]:
    """What the page's example reads; as ``row`` reads a value, if it is given."""
    names = {
        "localhost:9092": fed.bootstrap,
        "shop.public.orders": fed.topic,
        "http://localhost:8081": fed.registry_url,
    }
    space: dict[str, Any] = {}
    function, call = _FOLD.rsplit("\n\n", 1)
    for block in (function, call if fed.value_format == "json" else _AVRO):
        for printed, given in names.items():
            block = block.replace(printed, given)
        exec(compile(block, "docs/readers.md", "exec"), space)
    orders = space["orders"] if row is None else space["read_table"](fed.bootstrap, fed.topic, row)
    return list(orders.values())


def _series(values: pandas.Series, form: Form, value_format: str) -> pandas.Series:
    """A column with the type that holds all of its values."""
    match form:
        case Form.INTEGER:
            return values.astype("Int64")
        case Form.BOOLEAN:
            return values.astype("boolean")
        case Form.REAL | Form.DOUBLE:
            return values.map(float, na_action="ignore").astype("Float64")
        case Form.NUMERIC:
            return values.map(Decimal, na_action="ignore")
        case Form.TIMESTAMP | Form.TIMESTAMPTZ if value_format == "json":
            moments = values.map(datetime.fromisoformat, na_action="ignore")
            return moments.astype("datetime64[us]" if form is Form.TIMESTAMP else "datetime64[us, UTC]")
        case Form.TIMESTAMP:
            return values.astype("datetime64[us]")
        case Form.TIMESTAMPTZ:
            return values.astype("datetime64[us, UTC]")
    return values


def _lines(rows: Iterable[Mapping[str, Any]], value_format: str) -> Iterator[str]:
    for row in rows:
        yield json.dumps({name: _accepted(COLUMNS[name].form, value, value_format) for name, value in row.items()})


def _accepted(form: Form, value: Any, value_format: str) -> Any:
    """A value in one of the forms that ``canonical`` accepts."""
    match value:
        case None:
            return None
        case _ if form is Form.DOCUMENT:
            return _DOCUMENTS.encode(value).decode() if value_format == "json" else value
        case list():
            return [_accepted(form, each, value_format) for each in value]
        case bytes():
            return "\\x" + value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case float():
            return repr(value)
        case Decimal():
            return format(value, "f")
        case UUID():
            return str(value)
    return value


def _or_none(value: Any) -> Any:
    """What pandas has for NULL as None: it has NaN, too, where a row lacks the column."""
    return None if value is pandas.NA or value is pandas.NaT or _is_nan(value) else value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
