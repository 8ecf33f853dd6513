"""Makes Connect's schema of an envelope; Kafka Connect's JsonConverter embeds it in each value.

https://debezium.io/documentation/reference/stable/connectors/postgresql.html describes the structs.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from cdc.contract.formats.debezium.types import debezium_type
from cdc.contract.record import DebeziumModes, TableSchema

_SNAPSHOT: Final = {
    "type": "string",
    "optional": True,
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
    "default": "false",
    "field": "snapshot",
}


def _field(name: str, kind: str, *, optional: bool) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


_SOURCE: Final = {
    "type": "struct",
    "fields": [
        *(_field(name, "string", optional=False) for name in ("version", "connector", "name")),
        _field("ts_ms", "int64", optional=False),
        _SNAPSHOT,
        _field("db", "string", optional=False),
        _field("sequence", "string", optional=True),
        *(_field(name, "int64", optional=True) for name in ("ts_us", "ts_ns")),
        *(_field(name, "string", optional=False) for name in ("schema", "table")),
        *(_field(name, "int64", optional=True) for name in ("txId", "lsn", "xmin")),
        _field("origin", "string", optional=True),
        _field("origin_lsn", "int64", optional=True),
    ],
    "optional": False,
    "name": "io.debezium.connector.postgresql.Source",
    "version": 1,
    "field": "source",
}
_TRANSACTION: Final = {
    "type": "struct",
    "fields": [
        _field("id", "string", optional=False),
        *(_field(name, "int64", optional=False) for name in ("total_order", "data_collection_order")),
    ],
    "optional": True,
    "name": "event.block",
    "version": 1,
    "field": "transaction",
}


def embedded_schema(table: TableSchema, modes: DebeziumModes) -> bytes:
    """Returns the schema of a table's envelopes as JsonConverter writes it."""
    return orjson.dumps(connect_schema(table, modes))


def connect_schema(table: TableSchema, modes: DebeziumModes) -> dict[str, Any]:
    """Returns the schema of a table's envelopes. Every column outside the key is optional: the stream tells no more."""
    columns = [_column(each.name, each.sql_type, modes, is_key=each.name in table.key) for each in table.columns]
    row = {"type": "struct", "fields": columns, "optional": True, "name": f"{table.topic}.Value"}
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        _SOURCE,
        _TRANSACTION,
        _field("op", "string", optional=False),
        *(_field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{table.topic}.Envelope", "version": 2}


def _column(name: str, sql_type: str, modes: DebeziumModes, *, is_key: bool) -> dict[str, Any]:
    schema = dict(debezium_type(sql_type, modes).schema)
    return {**schema, "optional": not is_key, "field": name}
