"""Converts PostgreSQL's texts of single values to other forms of JSON, and these to the form that JSON has by default.

| form | of | is |
|---|---|---|
| ``iso`` | timestamp, timestamptz | ``2026-01-31T12:30:00.5``, with ``Z`` for timestamptz |
| ``number`` | numeric | a JSON number with the server's digits, if no more than 15 of them are significant |
| ``base64`` | bytea | a string in base64 |
| ``string`` | json, jsonb | a string that holds the document's text, so that the document ``null`` is not NULL |

A value for which its form has no place stays the server's text, as a string: infinity, years before 1 and after 9999,
NaN, longer numbers. Each of these differs from whatever the form writes. An array has its elements in the form; one
with bounds of its own is the server's text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from cdc.contract.formats.arrays import array_literal, parse_array
from cdc.contract.formats.debezium.texts import read_base64, string, write_base64
from cdc.contract.formats.values import Converter, converter_of, text
from cdc.contract.kinds import Kind, kind_of
from cdc.contract.record import ColumnForm

Reader: TypeAlias = Callable[[bytes], bytes]
"""Converts a column's JSON, except null, to that of the topic contract."""

_MOST_DIGITS: Final = 15
"""Every decimal number with so many digits comes back from a double: DBL_DIG of IEEE 754."""
_MOST_PLACES: Final = 300
"""Below 10^-307, doubles have fewer digits."""
_DIGITS: Final = frozenset(b"0123456789")
_BEGINS_NUMBER: Final = frozenset(b"-0123456789")

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def write_iso(cell: bytes) -> bytes:
    """Converts a timestamp: ``2026-01-31T12:30:00``."""
    # Text with a longer year or without digits has no blank there; what is before Christ ends with BC
    if cell[10:11] == b" " and cell[-1] in _DIGITS:
        return b'"%bT%b"' % (cell[:10], cell[11:])
    return b'"%b"' % cell


def write_iso_utc(cell: bytes) -> bytes:
    """Converts a timestamp with time zone, which the bridge has printed in UTC: ``2026-01-31T12:30:00Z``."""
    if cell[10:11] == b" " and cell.endswith(b"+00"):
        return b'"%bT%bZ"' % (cell[:10], cell[11:-3])
    return b'"%b"' % cell


def write_number(cell: bytes) -> bytes:
    """Converts a numeric to a number if it comes back from a double, otherwise to a string."""
    if cell[-1] in _DIGITS:
        if len(cell) <= _MOST_DIGITS:
            return cell
        if len(cell) <= _MOST_PLACES and len(cell.replace(b".", b"").lstrip(b"-0")) <= _MOST_DIGITS:
            return cell
    return b'"%b"' % cell


def _read_iso(raw: bytes, zone: bytes) -> bytes:
    if raw[11:12] != b"T":
        return _checked_string(raw)
    body = raw[12 : -2 if zone else -1]
    if raw[:1] != b'"' or raw[-1:] != b'"' or (zone and raw[-2:-1] != b"Z"):
        raise ValueError("not a timestamp")
    return b'%b %b%b"' % (raw[:11], body, zone)


def _read_number(raw: bytes) -> bytes:
    return b'"%b"' % raw if raw[0] in _BEGINS_NUMBER else _checked_string(raw)


def _read_bytes(raw: bytes) -> bytes:
    return text(read_base64(raw).encode())


def _read_document(raw: bytes) -> bytes:
    return string(raw).encode()


def _checked_string(raw: bytes) -> bytes:
    if raw[:1] != b'"':
        raise ValueError("neither in its form nor a string")
    return raw


_FORMS: Final[dict[tuple[Kind, ColumnForm], tuple[Converter, Reader]]] = {
    (Kind.TIMESTAMP, "iso"): (write_iso, partial(_read_iso, zone=b"")),
    (Kind.TIMESTAMPTZ, "iso"): (write_iso_utc, partial(_read_iso, zone=b"+00")),
    (Kind.DECIMAL, "number"): (write_number, _read_number),
    (Kind.BYTES, "base64"): (write_base64, _read_bytes),
    (Kind.DOCUMENT, "string"): (text, _read_document),
}


OTHER_FORMS: Final[Mapping[Kind, ColumnForm]] = dict(_FORMS.keys())
"""The form that values of a kind can have instead of the one that JSON has by default."""


def converters(sql_type: str, form: ColumnForm) -> tuple[Converter, Reader] | None:
    """Returns writer and reader of a column; None if it has the form that JSON has by default."""
    kind, is_array, _ = kind_of(sql_type)
    if not form:
        return None
    pair = _FORMS.get((kind, form))
    if pair is None:
        raise ValueError(f"form {form!r} is not one for {sql_type}")
    if not is_array:
        return pair
    write, read = pair
    return _array_writer(write), _array_reader(read, kind, converter_of(sql_type))


def _array_writer(write: Converter) -> Converter:
    def element(cell: str) -> orjson.Fragment:
        return orjson.Fragment(write(cell.encode()))

    def write_array(cell: bytes) -> bytes:
        literal = cell.decode()
        elements = parse_array(literal, element)
        return orjson.dumps(literal if elements is None else elements)

    return write_array


def _array_reader(read: Reader, kind: Kind, convert: Converter) -> Reader:
    def element(raw: bytes) -> Any:
        if raw == b"null":
            return None
        if raw[:1] == b"[":
            return [element(bytes(each)) for each in _ELEMENTS.decode(raw)]
        found = read(raw)
        return found.decode() if kind is Kind.DOCUMENT else string(found)

    def read_array(raw: bytes) -> bytes:
        literal = string(raw) if raw[:1] == b'"' else array_literal(element(raw))
        return convert(literal.encode())

    return read_array
