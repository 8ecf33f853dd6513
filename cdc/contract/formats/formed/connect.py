"""Makes Kafka Connect's schemas of rows in JSON, as its JsonConverter reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from cdc.contract.kinds import Kind, kind_of
from cdc.contract.record import SchemaColumn

CONNECT_TYPES: Final[Mapping[Kind, str]] = {
    Kind.BOOL: "boolean",
    Kind.INT16: "int16",
    Kind.INT32: "int32",
    Kind.INT64: "int64",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), "string"),
    **dict.fromkeys((Kind.BYTES, Kind.DOCUMENT, Kind.ASCII, Kind.TEXT), "string"),
}


def row_schema(columns: Iterable[SchemaColumn], *, required: Iterable[str], is_optional: bool) -> dict[str, Any]:
    """Returns the schema of rows.

    Args:
        columns: the columns of the rows, with the forms in which their values are written.
        required: the names of those that are never null.
        is_optional: whether a row may be null.
    """
    never_null = frozenset(required)
    fields = [{"field": each.name, **_type(each), "optional": each.name not in never_null} for each in columns]
    return {"type": "struct", "optional": is_optional, "fields": fields}


def _type(column: SchemaColumn) -> dict[str, Any]:
    kind = kind_of(column.sql_type)
    # JsonConverter reads bytes from base64
    connect_type = "bytes" if column.form == "base64" else CONNECT_TYPES[kind.kind]
    if not kind.is_array:
        return {"type": connect_type}
    return {"type": "array", "items": {"type": connect_type, "optional": True}}
