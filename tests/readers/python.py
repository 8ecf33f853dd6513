"""Readers in Python: confluent-kafka as docs/readers.md has it, and what pandas and DuckDB make of its rows."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import duckdb
import msgspec
import pandas  # type: ignore[import-untyped]
import pyarrow

from tests.architecture.pages import page
from tests.readers.fed import EMBEDS_DOCUMENTS, Fed, ValueFormat
from tests.readers.table import COLUMNS, Form

_PAGE: Final = page("docs/readers.md")


def _example(text: str) -> str:
    """The page's block that has this text."""
    (found,) = [each for each in _PAGE.fences("python") if text in each]
    return found


_FOLD, _CALL = _example("import OFFSET_BEGINNING").rsplit("\n\n", 1)
_AVRO: Final = _example("AvroDeserializer")
_NAMES: Final = _AVRO.partition("with ")[0]
_BLOCKS: Final[Mapping[ValueFormat, str]] = {
    "json": _CALL,
    "avro": _AVRO,
    "json-schema": _NAMES + _example("JSONDeserializer"),
    "protobuf": _NAMES + _example("ProtobufDeserializer"),
}
_LAMBDAS: Final = dict(zip(("debezium", "debezium-schemas", "connect"), _PAGE.rows("values in JSON"), strict=True))

_DOCUMENTS: Final = msgspec.json.Encoder(decimal_format="number")
_EPOCH: Final = datetime(1970, 1, 1)

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
    "integer[]": "INTEGER[]",
    "text[]": "VARCHAR[]",
}
"""As somebody would declare them; the rest is text."""
_NUMBERS: Final = {"date": "INTEGER", "time": "BIGINT", "timestamp": "BIGINT"}
_OWN_TYPES: Final[Mapping[ValueFormat, Mapping[str, str]]] = {
    "json": {"jsonb": "JSON"},
    "json-schema": {"jsonb": "JSON"},
    "protobuf": {
        "integer[]": "STRUCT(elements STRUCT(value INTEGER)[])",
        "text[]": "STRUCT(elements STRUCT(value VARCHAR)[])",
    },
    "debezium": _NUMBERS,
    "debezium-schemas": _NUMBERS,
}
_PLACES: Final[Mapping[ValueFormat, Sequence[str]]] = {
    "debezium": ("after",),
    "debezium-schemas": ("payload", "after"),
    "connect": ("payload",),
}
"""Where the row is in a value."""


def confluent_kafka(fed: Fed, directory: Path) -> Iterator[str]:
    """The dictionaries of docs/readers.md, as they are."""
    return _lines(_folded(fed, directory), fed.value_format)


def in_pandas(fed: Fed, directory: Path) -> Iterator[str]:
    """The same rows in a data frame whose columns have types."""
    frame = pandas.DataFrame(_folded(fed, directory), columns=list(COLUMNS), dtype=object)
    for name, column in COLUMNS.items():
        if not column.is_array:
            frame[name] = _series(frame[name], column.form)
    rows = frame.astype(object).to_dict("records")
    return _lines(({name: _or_none(value) for name, value in row.items()} for row in rows), fed.value_format)


def in_duckdb(fed: Fed, directory: Path) -> Iterator[str]:
    """The same rows in a table of DuckDB: Avro through Arrow, everything else through a file."""
    own = {**_DUCKDB_TYPES, **_OWN_TYPES.get(fed.value_format, {})}
    types = {name: own.get(column.sql_type, "VARCHAR") for name, column in COLUMNS.items()}
    database = duckdb.connect()
    database.sql("SET timezone = 'UTC'")
    if fed.value_format == "avro":
        rows = _folded(fed, directory)
        arrow = pyarrow.Table.from_pylist([{name: row.get(name) for name in COLUMNS} for row in rows])
        columns = ", ".join(f"{name}::{'BLOB' if name == 'raw' else each} AS {name}" for name, each in types.items())
        database.register("arrow", arrow)
        database.sql(f"CREATE TABLE matrix AS SELECT {columns} FROM arrow")
    else:
        file = directory / "rows.jsonl"
        file.write_bytes(b"".join(line + b"\n" for line in _json_lines(fed, directory)))
        place = _PLACES.get(fed.value_format, ())
        for each in reversed(place):
            types = {each: f"STRUCT({', '.join(f'{name} {of}' for name, of in types.items())})"}
        declared = ", ".join(f"{name}: '{each}'" for name, each in types.items())
        columns = f"unnest({'.'.join(place)})" if place else "*"
        database.sql(f"CREATE TABLE matrix AS SELECT {columns} FROM read_json('{file}', columns = {{{declared}}})")
    # Its texts, because DuckDB's own types for Python end at the year 9999, and have no infinity
    shown = ", ".join(_shown(fed, name) for name in COLUMNS)
    rows_of_texts = database.sql(f"SELECT {shown} FROM matrix").fetchall()
    database.close()
    return (json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows_of_texts)


def _shown(fed: Fed, name: str) -> str:
    column = COLUMNS[name]
    if name == "raw" and fed.value_format == "avro":
        return "'\\x' || lower(hex(raw))"
    if column.form is Form.BOOLEAN or (column.is_array and fed.value_format == "protobuf"):
        return name
    return f"{name}::VARCHAR{'[]' if column.is_array else ''}"


def _json_lines(fed: Fed, directory: Path) -> Iterable[bytes]:
    if fed.value_format == "protobuf":
        return (json.dumps(row).encode() for row in _folded(fed, directory))
    return _folded(fed, directory, bytes if fed.value_format != "json-schema" else lambda value: value[5:])


def _folded(fed: Fed, directory: Path, row: Callable[[bytes], Any] | None = None) -> list[Any]:
    """What the page's example reads; as ``row`` reads a value, if it is given."""
    space: dict[str, Any] = {}
    exec(compile(_FOLD, "docs/readers.md", "exec"), space)
    if row is None and fed.value_format in _LAMBDAS:
        row = eval(_LAMBDAS[fed.value_format][1].strip("`"), space)
    if row is not None:
        return list(space["read_table"](fed.bootstrap, fed.topic, row).values())
    if fed.value_format == "protobuf":
        _generate(fed, directory)
    names = {
        "localhost:9092": fed.bootstrap,
        "shop.public.orders": fed.topic,
        "http://localhost:8081": fed.registry_url,
        "from orders_pb2 import orders": f"from {_module(fed)} import matrix",
    }
    block = _BLOCKS[fed.value_format]
    for printed, given in names.items():
        block = block.replace(printed, given)
    exec(compile(block, "docs/readers.md", "exec"), space)
    return list(space["orders"].values())


def _module(fed: Fed) -> str:
    """A name of its own for each topic: Protobuf knows a file by its name, in the whole process."""
    return f"{fed.topic.replace('.', '_')}_pb2"


def _generate(fed: Fed, directory: Path) -> None:
    """Do what the page's shell does: make a module of the newest schema."""
    name = _module(fed).removesuffix("_pb2")
    (directory / f"{name}.proto").write_text(fed.newest_schema(), encoding="utf-8")
    protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", f"{name}.proto"]
    subprocess.run(protoc, cwd=directory, check=True, timeout=60)
    sys.path.insert(0, str(directory))


def _series(values: pandas.Series, form: Form) -> pandas.Series:
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
        case Form.TIMESTAMP:
            return values.map(_moment, na_action="ignore").astype("datetime64[us]")
        case Form.TIMESTAMPTZ:
            return values.map(_moment, na_action="ignore").astype("datetime64[us, UTC]")
    return values


def _moment(value: Any) -> datetime:
    """A timestamp of any format: Avro's is one, Debezium's are microseconds, all others are texts."""
    if isinstance(value, int):
        return _EPOCH + timedelta(microseconds=value)
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _lines(rows: Iterable[Mapping[str, Any]], value_format: ValueFormat) -> Iterator[str]:
    for row in rows:
        yield json.dumps({name: _accepted(COLUMNS[name].form, value, value_format) for name, value in row.items()})


def _accepted(form: Form, value: Any, value_format: ValueFormat) -> Any:
    """A value in one of the forms that ``canonical`` accepts."""
    match value:
        case None:
            return None
        case _ if form is Form.DOCUMENT:
            return _DOCUMENTS.encode(value).decode() if value_format in EMBEDS_DOCUMENTS else value
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
