"""Flink SQL in one process: upsert-kafka, with json and avro-confluent, and kafka with debezium-json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.readers.fed import Fed, ValueFormat
from tests.readers.losses import unquoted
from tests.readers.programs import run_java
from tests.readers.table import COLUMNS, KEY

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

_IN_ENVELOPE: Final = {"date": "INT", "time": "BIGINT", "timestamp": "BIGINT", "bytea": "BYTES"}
_OF_FORMAT: Final[Mapping[ValueFormat, Mapping[str, str]]] = {
    # Flink's TIME has milliseconds, and its TIMESTAMP_LTZ expects a Z.
    "json": {"timestamp": "TIMESTAMP(6)"},
    # It reads a timestamp of Avro as milliseconds, whatever the schema says, and a numeric of JSON's bytes as base64.
    "avro": {"time": "BIGINT", "timestamp": "BIGINT", "timestamptz": "BIGINT", "bytea": "BYTES", "smallint": "INT"},
    "debezium": _IN_ENVELOPE,
    "debezium-schemas": _IN_ENVELOPE,
    "connect": {"timestamp": "TIMESTAMP(6)", "bytea": "BYTES"},
}
_UPSERT: Final = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
_PLACES: Final[Mapping[ValueFormat, Sequence[str]]] = {
    "debezium-schemas": ("payload", "after"),
    "connect": ("payload",),
}
"""Where the row is in a value, which has no column for the key then."""
_OF_VALUES: Final[Mapping[ValueFormat, Mapping[str, str]]] = {
    "avro": {**_UPSERT, "value.format": "avro-confluent"},
    "protobuf": {**_UPSERT, "value.format": "protobuf"},
    "debezium": {"connector": "kafka", "format": "debezium-json", "scan.startup.mode": "earliest-offset"},
    **{each: {**_UPSERT, "value.fields-include": "EXCEPT_KEY"} for each in _PLACES},
}
_OPENED: Final = [
    option
    for each in ("java.util", "java.lang", "java.time", "java.math", "java.nio")
    for option in ("--add-opens", f"java.base/{each}=ALL-UNNAMED")
]


def flink_sql(fed: Fed, directory: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """The rows of the table that Flink holds, with more options of the table."""
    place = _PLACES.get(fed.value_format, ())
    columns = ", ".join(
        f"`{name}`" if name in KEY or not place else f"{'.'.join(f'`{each}`' for each in (*place, name))} AS `{name}`"
        for name in COLUMNS
    )
    said = run_java(
        "flink",
        ["FlinkReader"],
        ["flink"],
        [_table(fed, more or {}), f"SELECT {columns} FROM matrix"],
        directory,
        _OPENED,
    )
    for line in said:
        row = json.loads(line)
        if fed.value_format == "json" and row["doc"] is not None:
            row["doc"] = unquoted(row["doc"])
        yield json.dumps(row)


def _table(fed: Fed, more: Mapping[str, str]) -> str:
    types = {**_TYPES, **_OF_FORMAT.get(fed.value_format, {})}
    columns = {name: types.get(column.sql_type, "STRING") for name, column in COLUMNS.items()}
    key = {name: columns[name] for name in KEY}
    for each in reversed(_PLACES.get(fed.value_format, ())):
        columns = {each: f"ROW<{', '.join(f'`{name}` {of}' for name, of in columns.items())}>"}
    options = {
        **_OF_VALUES.get(fed.value_format, _UPSERT),
        "topic": fed.topic,
        "properties.bootstrap.servers": fed.bootstrap,
        "properties.isolation.level": "read_committed",
        "scan.bounded.mode": "latest-offset",
        **more,
    }
    if fed.value_format == "avro":
        options["value.avro-confluent.url"] = fed.registry_url
    declared = "".join(f"  `{name}` {each},\n" for name, each in (key | columns).items())
    given = ",\n".join(f"  '{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE matrix (\n{declared}  PRIMARY KEY ({', '.join(KEY)}) NOT ENFORCED\n) WITH (\n{given}\n)"
