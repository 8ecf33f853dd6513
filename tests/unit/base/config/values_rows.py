"""Rows of test_options.py about the section values."""

from __future__ import annotations

from typing import Any, Final

DEFAULTS: Final[dict[str, Any]] = {
    "values.timestamps": "postgres",
    "values.numeric": "text",
    "values.bytea": "hex",
    "values.documents": "embedded",
    "values.schemas": "none",
    "values.tables": {},
}

ACCEPTED: Final[list[tuple[str, Any]]] = [
    ("values.timestamps", "iso"),
    ("values.numeric", "number"),
    ("values.bytea", "base64"),
    ("values.documents", "string"),
]

REFUSED: Final[list[tuple[str, Any, str]]] = [
    ("values.timestamps", "rfc3339", "should be 'postgres' or 'iso'"),
    ("values.numeric", "double", "should be 'text' or 'number'"),
    ("values.bytea", "raw", "should be 'hex' or 'base64'"),
    ("values.documents", "text", "should be 'embedded' or 'string'"),
    ("values.schemas", "avro", "should be 'none' or 'connect'"),
    ("values.schemas", "connect", "with schemas: connect, set documents: string"),
    ("values.tables", {"orders": {"numeric": "number"}}, "write schema.table, for instance public.orders"),
    ("values.tables", {"public.orders": {"numeric": "float"}}, "should be 'text' or 'number'"),
    ("values.tables", {"public.orders": {"columns": {"": {}}}}, "must not be empty"),
    ("values.tables", {"public.orders": {"columns": {"n": {"schemas": "connect"}}}}, "unknown key"),
    ("values.tables", {"public.orders": {"schemas": "connect"}}, "set documents: string"),
    (
        "values.tables",
        {"public.orders": {"schemas": "connect", "documents": "string", "columns": {"n": {"numeric": "number"}}}},
        r"values.tables.public.orders.columns.n: Kafka Connect has no type for what is a number or a text",
    ),
]
