"""Keys as URLs and JSON spell them → values of the table's key columns. Pure.

A key in a path is one segment for each key column, percent-encoded: ``/rows/eu/7``. In JSON it is an object of the key
columns, as in the topic: ``{"region":"eu","user_id":7}``. In topics whose keys are not objects of columns, the key is
one segment, and the text itself.

A value may be spelled in any way that PostgreSQL reads. The result has the topic's spelling
(``cdc.contract.formats.canonical``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

import orjson

from cdc.base.web.problem import Problem
from cdc.contract.formats.canonical import beginning_of, reading_of
from cdc.contract.kinds import FLOATS, INTEGERS, ColumnKind, Kind, kind_of
from cdc.views.table import exact_json
from cdc.views.table.facts import KeyColumn, TableFacts
from cdc.views.table.keys import is_respelled

KeyValues: TypeAlias = tuple[Any, ...]
"""A value for each key column, as JSON has it; one text in topics whose keys have no columns."""

_NO_SEGMENTS: Final = frozenset(("", ".", ".."))
"""Segments that may not arrive as part of a path, percent-encoded or not: RFC 3986, 5.2.4 and 6.2.2."""

_PLAIN_NUMBER: Final = re.compile(r"[1-9][0-9]*")
"""A number in the topic's spelling, if it fits into its type."""
_SURE_DIGITS: Final[Mapping[Kind, int]] = {Kind.INT16: 4, Kind.INT32: 9, Kind.INT64: 9}
"""Digits that surely fit into integer types. ``oid`` counts as an INT64, and has 32 bits."""


@lru_cache(maxsize=1024)
def _kind(sql_type: str) -> ColumnKind:
    return kind_of(sql_type)


@lru_cache(maxsize=1024)
def _sure_digits(sql_type: str) -> int:
    kind, is_array, _ = kind_of(sql_type)
    return 0 if is_array else _SURE_DIGITS.get(kind, 0)


def from_path(table: TableFacts, tail: bytes) -> KeyValues:
    """Reads the key in a URL's path.

    Args:
        table: the key's table.
        tail: the text after ``/rows/``, still percent-encoded.

    Raises:
        Problem: ``malformed-key`` or ``wrong-key-columns``.
    """
    try:
        texts = [(unquote_to_bytes(part) if b"%" in part else part).decode() for part in tail.split(b"/")]
    except UnicodeDecodeError:
        raise Problem("malformed-key", "The key in the path is not UTF-8 when percent-decoded.") from None
    columns = key_columns(table)
    if len(texts) != len(columns):
        shape = "/".join(f"{{{column.name}}}" for column in columns)
        raise Problem(
            "wrong-key-columns",
            f"{table.name} has the key ({_names(columns)}), but the path has {len(texts)} values. "
            f"Write /v1/tables/{table.name}/rows/{shape}, and %2F for a / inside a value.",
        )
    key = tuple(_from_text(table, column, text) for column, text in zip(columns, texts, strict=True))
    if not _NO_SEGMENTS.isdisjoint(texts):
        raise _no_segment(table, key)
    return key


def _no_segment(table: TableFacts, key: KeyValues) -> Problem:
    """Refuses such a segment, although it arrived: in other requests a client or proxy would have removed it."""
    is_object = table.key_kind == "columns"
    named = {column.name: value for column, value in zip(key_columns(table), key, strict=True)}
    asked = quote(exact_json.dumps(named).decode() if is_object else key[0], safe="")
    return Problem(
        "malformed-key",
        "A path cannot contain a key value that is empty, . or ..: clients and proxies remove such a segment, and ask "
        f"for another page. Write the key as a parameter: /v1/tables/{quote(table.name)}/rows?key={asked}",
    )


def from_json(table: TableFacts, given: object) -> KeyValues:
    """Reads a key in JSON: an object of the key columns.

    Raises:
        Problem: ``malformed-key`` or ``wrong-key-columns``.
    """
    columns = key_columns(table)
    if table.key_kind != "columns" and isinstance(given, str):
        return (given,)
    if not isinstance(given, dict):
        raise Problem("malformed-key", f"A key of {table.name} is a JSON object, such as {_example(columns)}.")
    if given.keys() != {column.name for column in columns}:
        raise Problem(
            "wrong-key-columns",
            f"{table.name} has the key ({_names(columns)}), but this key has ({', '.join(map(str, given))}).",
        )
    return tuple(_checked(table, column, given[column.name]) for column in columns)


def from_query(table: TableFacts, text: str) -> KeyValues:
    """Reads the key in the parameter ``key``: JSON.

    Raises:
        Problem: as ``from_json``.
    """
    if table.key_kind != "columns":
        return (text,)
    try:
        given = loads(table, text)
    except ValueError as error:
        example = quote(_example(key_columns(table)), safe="")
        raise Problem(
            "malformed-key", f"The parameter key is not JSON ({error}). Write key={example} for {table.name}."
        ) from None
    return from_json(table, given)


def loads(table: TableFacts, text: str | bytes) -> Any:
    """Parses JSON that contains keys of the table, with the fastest parser that keeps their spelling.

    Raises:
        ValueError: the text is not JSON.
    """
    if any(is_respelled(column.sql_type) for column in table.key):
        return exact_json.loads(text)
    return orjson.loads(text)


def from_segments(table: TableFacts, path: str) -> KeyValues:
    """Reads the first values of a key from a path: ``eu``, or ``eu/7``.

    Raises:
        Problem: ``malformed-key`` or ``wrong-key-columns``.
    """
    return _first_values(table, path.split("/"))


def leading(table: TableFacts, prefix: str) -> tuple[KeyValues, str | None]:
    """Reads how the paths of keys begin: ``eu/`` means the value eu, ``eu`` any text that begins with it.

    Returns:
        The first values, and how the value after them begins.

    Raises:
        Problem: ``malformed-key`` or ``wrong-key-columns``.
    """
    *whole, last = prefix.split("/")
    columns = key_columns(table)
    if not last:
        return _first_values(table, whole), None
    if len(whole) < len(columns) and _is_text(columns[len(whole)]):
        return _first_values(table, whole), beginning_of(columns[len(whole)].sql_type, _unquoted(last))
    return _first_values(table, [*whole, last]), None


def _first_values(table: TableFacts, segments: Sequence[str]) -> KeyValues:
    columns = key_columns(table)
    if len(segments) > len(columns):
        raise Problem(
            "wrong-key-columns",
            f"{table.name} has the key ({_names(columns)}), but {len(segments)} values were given. "
            "Write %2F for a / inside a value, and percent-encode it once more in a query: %252F.",
        )
    return tuple(_from_text(table, column, _unquoted(text)) for column, text in zip(columns, segments, strict=False))


def _unquoted(text: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise Problem("malformed-key", "A value of the key is not UTF-8 when percent-decoded.") from None


def _is_text(column: KeyColumn) -> bool:
    kind, is_array, _ = _kind(column.sql_type)
    return not is_array and kind not in {*INTEGERS, *FLOATS, Kind.BOOL, Kind.DOCUMENT}


def values_of(table: TableFacts, columns: Sequence[str], texts: Sequence[str | None]) -> KeyValues:
    """Reads values of any columns of a table, for example those of an index; None is NULL.

    Raises:
        Problem: ``malformed-key``.
    """
    types = types_of(table)
    return tuple(
        None if text is None else _from_text(table, KeyColumn(name, types.get(name, "text")), text, orjson.loads)
        for name, text in zip(columns, texts, strict=True)
    )


def types_of(table: TableFacts) -> Mapping[str, str]:
    """The type of each column that the table's definition has."""
    return {column.name: column.sql_type for column in (*table.columns, *table.key)}


def key_columns(table: TableFacts) -> tuple[KeyColumn, ...]:
    """The key columns; one column ``key`` where keys are not objects."""
    return table.key if table.key_kind == "columns" else (KeyColumn("key", "text"),)


def _from_text(table: TableFacts, column: KeyColumn, text: str, read: Callable[[str], Any] = exact_json.loads) -> Any:
    if len(text) <= _sure_digits(column.sql_type) and _PLAIN_NUMBER.fullmatch(text):
        return int(text)
    kind, is_array, _ = _kind(column.sql_type)
    if is_array or kind is Kind.DOCUMENT:
        try:
            return read(text)
        except ValueError:
            raise _not_of_its_type(table, column, text, "write it as JSON") from None
    return _value(table, column, text, kind)


def _value(table: TableFacts, column: KeyColumn, text: str, kind: Kind) -> Any:
    """Reads a scalar in any spelling, and returns it as the topic's JSON has it."""
    try:
        canonical = reading_of(column.sql_type).read(text)
    except ValueError as error:
        raise _not_of_its_type(table, column, text, str(error)) from None
    if kind in INTEGERS:
        return int(canonical)
    if kind is Kind.BOOL:
        return canonical == "t"
    return float(canonical) if kind in FLOATS else canonical


def _checked(table: TableFacts, column: KeyColumn, value: object) -> Any:
    """Checks a value from JSON. Numbers and booleans must have the right JSON type, and texts are read. Arrays and
    documents stay as they are."""
    kind, is_array, _ = _kind(column.sql_type)
    if is_array or kind is Kind.DOCUMENT:
        return value
    if kind is Kind.BOOL and type(value) is bool:
        return value
    if kind in INTEGERS:
        fits = type(value) is int
    elif kind in FLOATS:
        fits = type(value) in (int, float, Decimal) or value in ("NaN", "Infinity", "-Infinity")
    else:
        fits = type(value) is str and kind is not Kind.BOOL
    if not fits:
        raise _not_of_its_type(table, column, value, f"write it as in {_example(key_columns(table))}")
    return _value(table, column, str(value), kind)


def _not_of_its_type(table: TableFacts, column: KeyColumn, value: object, instead: str) -> Problem:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:80] + "…"
    example = orjson.dumps(_example_value(column.sql_type)).decode()
    return Problem(
        "malformed-key",
        f"{table.name}.{column.name} is {column.sql_type}, not {shown}: {instead}; a valid value is {example}.",
    )


def _names(columns: Sequence[KeyColumn]) -> str:
    return ", ".join(column.name for column in columns)


def _example(columns: Sequence[KeyColumn]) -> str:
    return orjson.dumps({column.name: _example_value(column.sql_type) for column in columns}).decode()


def _example_value(sql_type: str) -> object:
    kind, is_array, _ = _kind(sql_type)
    if is_array or kind is Kind.DOCUMENT:
        return [] if is_array else {"a": 1}
    example = reading_of(sql_type).example
    return int(example) if kind in INTEGERS else True if kind is Kind.BOOL else 1.5 if kind in FLOATS else example
