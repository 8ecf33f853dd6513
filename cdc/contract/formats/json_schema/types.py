"""Says which JSON Schema the values of a column have. Every value that the JSON format writes is valid by it.

| type | JSON Schema |
|---|---|
| bool | boolean |
| int2, int4 | integer, with bounds |
| int8, oid | integer |
| float4, float8 | number, or one of the strings NaN, Infinity, -Infinity |
| json, jsonb | anything |
| uuid | string, with the format uuid |
| all others | string |
| array | array of null, the element's schema or further arrays; or a string, for an array with explicit bounds |

Only uuid has a format. PostgreSQL's texts of dates and times are not those of RFC 3339: they may be infinite, before
Christ or without a time zone, and have a space instead of ``T``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from cdc.contract.kinds import Kind, kind_of

Branches: TypeAlias = tuple[dict[str, Any], ...]
"""Schemas of which a value has exactly one; none if it may be anything."""

_NULL: Final = {"type": "null"}
_STRING: Final[Branches] = ({"type": "string"},)
_NUMBER: Final[Branches] = ({"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]})
_UUID: Final[Branches] = ({"type": "string", "format": "uuid"},)
_DIMENSION: Final = {"type": "array"}


def _integer(bits: int) -> Branches:
    return ({"type": "integer", "minimum": -(1 << bits - 1), "maximum": (1 << bits - 1) - 1},)


JSON_SCHEMA_TYPES: Final[Mapping[Kind, Branches]] = {
    Kind.BOOL: ({"type": "boolean"},),
    Kind.INT16: _integer(16),
    Kind.INT32: _integer(32),
    # Without bounds: libraries that read them as floating point numbers would round them
    Kind.INT64: ({"type": "integer"},),
    **dict.fromkeys((Kind.FLOAT32, Kind.FLOAT64), _NUMBER),
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), _STRING),
    Kind.DOCUMENT: (),
    **dict.fromkeys((Kind.BYTES, Kind.ASCII, Kind.TEXT), _STRING),
}


def value_schema(sql_type: str, *, is_nullable: bool) -> dict[str, Any]:
    """Returns the schema of a column's values.

    Args:
        sql_type: the column's type, as ``__schemas`` spells it.
        is_nullable: whether a value may be null.
    """
    kind, is_array, _ = kind_of(sql_type)
    element = sql_type.removesuffix("[]")
    if not is_array:
        return _one_of(_UUID if element == "uuid" else JSON_SCHEMA_TYPES[kind], is_nullable=is_nullable)
    is_builtin = not element.startswith('"') or element in ('"char"', '"bit"')
    of_elements = _UUID if element == "uuid" else JSON_SCHEMA_TYPES[kind] if is_builtin else _STRING
    array: dict[str, Any] = {"type": "array"}
    if of_elements:
        array["items"] = _one_of((*of_elements, _DIMENSION), is_nullable=True)
    return _one_of((array, *_STRING), is_nullable=is_nullable)


def _one_of(branches: Branches, *, is_nullable: bool) -> dict[str, Any]:
    """Returns a schema with these branches; a union is written as Confluent's own converters write it."""
    if not branches:
        return {}
    branches = (_NULL, *branches) if is_nullable else branches
    return dict(branches[0]) if len(branches) == 1 else {"oneOf": list(branches)}


def family(sql_type: str) -> str:
    """Returns what a text of the type means to a reader; two types with the same family are told apart by schemas."""
    kind, is_array, _ = kind_of(sql_type)
    of_value = {Kind.BYTES: "bytes in hexadecimal digits", Kind.DOCUMENT: "a document"}.get(kind, "a value")
    return f"array of {of_value}" if is_array else of_value
