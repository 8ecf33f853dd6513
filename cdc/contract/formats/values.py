"""Converts the server's text of a value to JSON; the conversion is chosen once per column, by its type.

| type | JSON |
|---|---|
| bool | ``true``, ``false`` |
| int2, int4, int8, oid | number |
| float4, float8 | number as the server wrote it; ``"NaN"``, ``"Infinity"``, ``"-Infinity"`` |
| json, jsonb | the document, byte for byte; the header's ``json_null`` tells the document ``null`` from NULL |
| array | nested JSON array of elements in their form; with explicit bounds: the server's text as a string |
| array of json, jsonb | the same if it has one dimension and no document ``null``; else the text as a string |
| all others | the server's text as a string |

A domain has its base type's form, because the stream names that. int2vector and oidvector are not array literals in
text form, so they are strings. For an array of a type that is not built in (or of a domain), the stream does not name
the element type. Today's catalog may not have it any more, or may have another type of that name. So the elements are
strings, whatever their type is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import orjson

from cdc.contract.change import Column
from cdc.contract.formats.arrays import array_literal, parse_array
from cdc.contract.kinds import ColumnKind, Kind, kind_of, kind_of_column
from cdc.contract.pgtypes import CATALOG, split_type_name

Converter: TypeAlias = Callable[[bytes], bytes]
"""Converts the server's text to JSON. It raises for anything but bytes; that is how a NULL leaves the fast path."""

_SPECIAL_FLOATS: Final = {b"NaN": b'"NaN"', b"Infinity": b'"Infinity"', b"-Infinity": b'"-Infinity"'}
_BRACES: Final = bytes.maketrans(b"{}", b"[]")

# Match a literal of one dimension without escapes, and find its elements, in quotes or bare.
_is_flat = re.compile(r'\{(?:"[^"\\]*"|[^",{}\\]+)(?:,(?:"[^"\\]*"|[^",{}\\]+))*\}').fullmatch
_flat_elements = re.compile(r'"([^"]*)"|([^",{}]+)').findall

_dumps = orjson.dumps


def number(value: bytes) -> bytes:
    """Returns an integer unchanged: it is a JSON number already."""
    return value


def document(value: bytes) -> bytes:
    """Returns a JSON document unchanged, with duplicate keys, blanks and line breaks."""
    return value


def plain(value: bytes) -> bytes:
    """Convert text that needs no escaping."""
    return b'"%b"' % value


def text(value: bytes) -> bytes:
    """Convert any text. orjson escapes as RFC 8785 requires: only what has to be, with ``\\u00xx`` in lower case."""
    return _dumps(value.decode())


boolean: Converter = {b"t": b"true", b"f": b"false"}.__getitem__


def floating(value: bytes) -> bytes:
    return _SPECIAL_FLOATS.get(value, value)


def number_array(value: bytes) -> bytes:
    """Convert an array of integers: braces become brackets, and NULL becomes null."""
    if value[0] != 0x7B:
        return text(value)
    return value.translate(_BRACES).replace(b"NULL", b"null")


def text_array(value: bytes) -> bytes:
    """Convert an array whose elements become strings."""
    literal = value.decode()
    special = '"' in literal or "NULL" in literal
    if not special and not literal.rfind("{") and literal.find("}") + 1 == len(literal):
        return _dumps(literal[1:-1].split(",") if len(literal) > 2 else [])
    if _is_flat(literal):
        return _dumps([None if bare == "NULL" else bare or quoted for quoted, bare in _flat_elements(literal)])
    return _array(literal, _same, ",")


def box_array(value: bytes) -> bytes:
    return _array(value.decode(), _same, ";")


def boolean_array(value: bytes) -> bytes:
    return _array(value.decode(), {"t": True, "f": False}.__getitem__, ",")


def floating_array(value: bytes) -> bytes:
    return _array(value.decode(), _floating_element, ",")


def document_array(value: bytes) -> bytes:
    """Convert an array of JSON documents: to a list, unless readers could mistake one for a dimension or for NULL."""
    literal = value.decode()
    elements = parse_array(literal, _same)
    if elements is None or any(type(each) is list or (each and each.strip() == "null") for each in elements):
        return _dumps(literal)
    return _dumps([None if each is None else orjson.Fragment(each) for each in elements])


def unknown_array(value: bytes) -> bytes:
    """Convert a value whose type is an array by its name only: to a string, unless the text is exactly an array's."""
    literal = value.decode()
    try:
        elements = parse_array(literal, _same)
    except ValueError:
        elements = None
    if elements is None or array_literal(elements) != literal:
        return _dumps(literal)
    return _dumps(elements)


def converter(column: Column) -> Converter:
    """Returns the converter of a column's values."""
    return _converter(kind_of_column(column), is_builtin=split_type_name(column.type_name)[0] == CATALOG)


def converter_of(sql_type: str) -> Converter:
    """Returns the converter of a type as ``__schemas`` spells it, for readers, which know no more of a column."""
    element = sql_type.removesuffix("[]")
    return _converter(kind_of(sql_type), is_builtin=not element.startswith('"') or element in ('"char"', '"bit"'))


def _converter(kind: ColumnKind, *, is_builtin: bool) -> Converter:
    if not kind.is_array:
        return CONVERTERS[kind.kind]
    if not is_builtin:
        return unknown_array
    return ARRAY_CONVERTERS[kind.kind] if kind.delimiter == "," else box_array


def _array(literal: str, element: Callable[[str], Any], delimiter: str) -> bytes:
    elements = parse_array(literal, element, delimiter)
    return _dumps(literal if elements is None else elements)


def _same(element: str) -> str:
    return element


def _floating_element(element: str) -> orjson.Fragment:
    return orjson.Fragment(floating(element.encode()))


CONVERTERS: Final[Mapping[Kind, Converter]] = {
    Kind.BOOL: boolean,
    **dict.fromkeys((Kind.INT16, Kind.INT32, Kind.INT64), number),
    **dict.fromkeys((Kind.FLOAT32, Kind.FLOAT64), floating),
    # Their text needs no escaping
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.ASCII), plain),
    Kind.DOCUMENT: document,
    **dict.fromkeys((Kind.BYTES, Kind.TEXT), text),
}
ARRAY_CONVERTERS: Final[Mapping[Kind, Converter]] = {
    Kind.BOOL: boolean_array,
    **dict.fromkeys((Kind.INT16, Kind.INT32, Kind.INT64), number_array),
    **dict.fromkeys((Kind.FLOAT32, Kind.FLOAT64), floating_array),
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), text_array),
    Kind.DOCUMENT: document_array,
    **dict.fromkeys((Kind.BYTES, Kind.ASCII, Kind.TEXT), text_array),
}
