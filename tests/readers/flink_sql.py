"""Flink SQL's upsert-kafka, with the formats json and avro-confluent, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tests.readers.fed import Fed
from tests.readers.losses import unquoted
from tests.readers.programs import run_java
from tests.readers.table import COLUMNS, KEY, Form

_TYPES: Final = {
    "integer": "INT",
    "smallint": "SMALLINT",
    "bigint": "BIGINT",
    "numeric(12,2)": "DECIMAL(12, 2)",
    "numeric(6,3)": "DECIMAL(6, 3)",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "integer[]": "ARRAY<INT>",
    "text[]": "ARRAY<STRING>",
}
"""What is not here is a STRING; it depends on the format what a time and a timestamp are."""

_OF_FORMAT: Final = {
    # Flink's TIME has milliseconds, and its TIMESTAMP_LTZ expects a Z.
    "json": {"timestamp": "TIMESTAMP(6)"},
    # It reads a timestamp of Avro as milliseconds, whatever the schema says, and a numeric of JSON's bytes as base64.
    "avro": {"time": "BIGINT", "timestamp": "BIGINT", "timestamptz": "BIGINT", "bytea": "BYTES", "smallint": "INT"},
}
_OPENED: Final = [
    option
    for each in ("java.util", "java.lang", "java.time", "java.math", "java.nio")
    for option in ("--add-opens", f"java.base/{each}=ALL-UNNAMED")
]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def upsert_kafka(fed: Fed, directory: Path) -> Iterator[str]:
    """The rows of the table that Flink holds."""
    columns = ", ".join(f"`{name}`" for name in COLUMNS)
    said = run_java(
        "flink", ["FlinkReader"], ["flink"], [_table(fed), f"SELECT {columns} FROM matrix"], directory, _OPENED
    )
    for line in said:
        row = json.loads(line)
        yield json.dumps({name: _accepted(fed, name, value) for name, value in row.items()})


def _table(fed: Fed) -> str:
    types = {**_TYPES, **_OF_FORMAT[fed.value_format]}
    columns = "".join(f"  `{name}` {types.get(column.sql_type, 'STRING')},\n" for name, column in COLUMNS.items())
    options = {
        "connector": "upsert-kafka",
        "topic": fed.topic,
        "properties.bootstrap.servers": fed.bootstrap,
        "properties.isolation.level": "read_committed",
        "scan.bounded.mode": "latest-offset",
        "key.format": "json",
    }
    if fed.value_format == "json":
        options["value.format"] = "json"
    else:
        options |= {"value.format": "avro-confluent", "value.avro-confluent.url": fed.registry_url}
    given = ",\n".join(f"  '{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE matrix (\n{columns}  PRIMARY KEY ({', '.join(KEY)}) NOT ENFORCED\n) WITH (\n{given}\n)"


def _accepted(fed: Fed, name: str, value: Any) -> Any:
    """With Avro, a BIGINT of microseconds as the moment that it is; with JSON, what is left of a document."""
    form = COLUMNS[name].form
    if value is None:
        return None
    if fed.value_format == "json":
        return unquoted(value) if form is Form.DOCUMENT else value
    if form not in (Form.TIME, Form.TIMESTAMP, Form.TIMESTAMPTZ):
        return value
    moment = _EPOCH + timedelta(microseconds=int(value))
    if form is Form.TIME:
        return moment.time().isoformat()
    return moment.isoformat() if form is Form.TIMESTAMPTZ else moment.replace(tzinfo=None).isoformat()
