"""One form for the rows of every reader: the text that PostgreSQL prints, column by column.

A reader gives rows as JSON objects, one a line. A field that is not there is NULL. These are all the differences from
PostgreSQL's text that are not counted as differences; each says the same value:

- Booleans are ``true`` and ``false``; integers are JSON's or texts.
- A numeric is a text or a JSON number, with the very digits: 1.10 is not 1.1.
- Floats are compared as IEEE numbers of their width, however many digits were printed.
- Between date and time stands a blank or a ``T``. Zeros at the end of a second's fraction may be there or not. UTC is
  ``Z``, ``+00`` or ``+00:00``. A date may be the days since 1970, a time the microseconds since midnight, a timestamp
  those since 1970.
- Bytes are ``\\x`` and hexadecimal digits, or base64.
- A document is the text of a JSON document: blanks and the order of members do not count, the digits of numbers do.
- An array is a JSON array of its elements' form, or the message that Protobuf's schema has for it.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql

from tests.readers.table import COLUMNS, KEY, Column, Form

Value: TypeAlias = str | tuple[str | None, ...] | None
Row: TypeAlias = Mapping[str, Value]
Rows: TypeAlias = dict[tuple[Value, ...], Row]

_MOMENTS: Final = {
    Form.DATE: re.compile(r"(\d{4}-\d\d-\d\d)()()()"),
    Form.TIME: re.compile(r"()(\d\d:\d\d:\d\d)(\.\d+)?()"),
    Form.TIMESTAMP: re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?()"),
    Form.TIMESTAMPTZ: re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00(?::00)?)"),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SINCE: Final[Mapping[Form, Callable[[int], str]]] = {
    Form.DATE: lambda days: (_EPOCH + timedelta(days=days)).date().isoformat(),
    Form.TIME: lambda micros: (_EPOCH + timedelta(microseconds=micros)).time().isoformat(),
    Form.TIMESTAMP: lambda micros: (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(),
    Form.TIMESTAMPTZ: lambda micros: (_EPOCH + timedelta(microseconds=micros)).isoformat(),
}
_INTEGER: Final = re.compile(r"-?\d+")
_BYTES: Final = re.compile(r"\\x([0-9a-f]{2})*")


class NotCanonical(ValueError):
    """A reader gave something that is not a value of the column in any of the accepted forms."""


class _Digits(str):
    """A number as it is printed."""

    __slots__ = ()


def rows_of(lines: Iterable[str | bytes]) -> Rows:
    """The rows that a reader printed, by key.

    Raises:
        NotCanonical: a value is not in an accepted form, a column is not the table's, or a key is there twice.
    """
    rows: Rows = {}
    for line in lines:
        found = json.loads(line, parse_int=_Digits, parse_float=_Digits)
        if unknown := set(found) - set(COLUMNS):
            raise NotCanonical(f"columns {sorted(unknown)} in {line!r}")
        row = {name: _canonical(name, column, found.get(name)) for name, column in COLUMNS.items()}
        key = tuple(row[name] for name in KEY)
        if key in rows:
            raise NotCanonical(f"key {key} twice")
        rows[key] = row
    return rows


def table_rows(connection: psycopg.Connection[Any]) -> Rows:
    """The rows of the table in a database, by key; needs a connection that prints pinned texts."""
    columns = [
        sql.SQL("{}::{}").format(sql.Identifier(name), sql.SQL("text[]" if column.is_array else "text"))
        for name, column in COLUMNS.items()
    ]
    query = sql.SQL("SELECT {} FROM public.matrix").format(sql.SQL(", ").join(columns))
    rows: Rows = {}
    for values in connection.execute(query):
        given = zip(COLUMNS.items(), values, strict=True)
        row = {name: _canonical(name, column, _typed(column, value)) for (name, column), value in given}
        rows[tuple(row[name] for name in KEY)] = row
    return rows


def differences(expected: Rows, found: Rows) -> list[str]:
    """A line for everything that a reader holds and the source does not, and the other way round."""
    lines = [f"missing {key}" for key in expected if key not in found]
    lines += [f"extra {key}" for key in found if key not in expected]
    for key in expected.keys() & found.keys():
        pairs = [(name, expected[key][name], found[key][name]) for name in COLUMNS]
        lines += [f"{key} {name}: {one!r} in the source, {other!r} here" for name, one, other in pairs if one != other]
    return sorted(lines)


def _typed(column: Column, text: Any) -> Any:
    """As a boolean's text becomes a boolean."""
    return text == "true" if column.form is Form.BOOLEAN and text is not None else text


def _canonical(name: str, column: Column, value: Any) -> Value:
    try:
        if value is None:
            return None
        if not column.is_array:
            return _text(column.form, value)
        if isinstance(value, dict):
            value = [each.get("value") for each in value.get("elements", ())]
        if not isinstance(value, list):
            raise NotCanonical("it is not an array")
        return tuple(None if each is None else _text(column.form, each) for each in value)
    except (ValueError, TypeError) as error:
        raise NotCanonical(f"{name} is {value!r}: {error}") from error


def _text(form: Form, value: Any) -> str:
    if form is Form.BOOLEAN:
        if not isinstance(value, bool):
            raise NotCanonical("it is not a boolean")
        return "t" if value else "f"
    if not isinstance(value, str) or (isinstance(value, _Digits) and form not in _NUMBERS):
        raise NotCanonical(f"it is a {type(value).__name__}")
    if form in _MOMENTS:
        return _moment(form, _SINCE[form](int(value)) if _INTEGER.fullmatch(value) else value)
    if form in (Form.REAL, Form.DOUBLE):
        number = float(value)
        return repr(struct.unpack("f", struct.pack("f", number))[0] if form is Form.REAL else number)
    if form is Form.DOCUMENT:
        return json.dumps(json.loads(value, parse_int=_number, parse_float=_number), sort_keys=True)
    if form is Form.BYTES and _BYTES.fullmatch(value) is None:
        return f"\\x{base64.b64decode(value, validate=True).hex()}"
    if form is Form.INTEGER and _INTEGER.fullmatch(value) is None:
        raise NotCanonical(f"it does not match {_INTEGER.pattern}")
    return str(value)


_NUMBERS: Final = {Form.INTEGER, Form.NUMERIC, Form.REAL, Form.DOUBLE, *_MOMENTS}


def _number(digits: str) -> dict[str, str]:
    """A number of a document, which no string equals."""
    return {"number": digits}


def _moment(form: Form, value: str) -> str:
    matched = _MOMENTS[form].fullmatch(value)
    if matched is None:
        raise NotCanonical(f"it does not match {_MOMENTS[form].pattern}")
    day, time, fraction, zone = matched.groups()
    fraction = (fraction or "").rstrip("0").rstrip(".")
    return f"{day} {time}{fraction}{'+00' if zone else ''}".strip()
