"""Converts a key as a person writes it to the bytes of the record key, as the bridge makes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from cdc.contract.change import Column
from cdc.contract.formats.canonical import Identity, Read, reading_of
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.json_format import JSON
from cdc.contract.json_members import member_texts
from cdc.contract.kinds import FLOATS, kind_of
from cdc.contract.pgtypes import CATALOG

_BUILT_IN: Final = re.compile(r"([a-z0-9_]+)(?:\([^)]*\)| [a-z ()0-9]+)?((?:\[\])?)")
_STRING: Final = msgspec.json.Decoder(str)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def written_values(text: str) -> Mapping[str, str]:
    """Parse a written key to texts by column; the texts stay as they are written.

    Args:
        text: ``{"id":1}``, or ``id=1,region=eu``.

    Raises:
        ValueError: the text has neither of these forms.
    """
    if text.lstrip().startswith("{"):
        try:
            return {name: _text(raw) for name, raw in member_texts(text).items()}
        except ValueError as error:
            raise ValueError(f"not a JSON object ({error})") from error
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and mark for name, mark, _ in pairs):
        raise ValueError("neither a JSON object nor column=value")
    return {name.strip(): value for name, _, value in pairs}


def key_bytes(values: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> bytes:
    """Returns the record key.

    Args:
        values: text of each key column, in any spelling that ``canonical`` reads.
        columns: the key's columns in its order: name, and type as ``__schemas`` spells it.

    Raises:
        ValueError: a value is not valid for its type.
    """
    texts = [canonical_text(name, sql_type, values[name]).encode() for name, sql_type in columns]
    try:
        key = JSON.writer([column_of(name, sql_type) for name, sql_type in columns]).encode(tuple(texts))
        # Documents and elements of arrays are put into it unread; a server's are always valid
        member_texts(key.decode())
    except NOT_ENCODABLE as error:
        raise ValueError(f"a value is not valid for its column's type ({error})") from error
    return key


def canonical_text(name: str, sql_type: str, text: str) -> str:
    """Returns a column's value as the server prints it.

    Raises:
        ValueError: the text is not a value of the column's type.
    """
    reading = reading_of(sql_type)
    try:
        return reading.read(text)
    except ValueError as error:
        shown = repr(text if len(text) <= 80 else text[:80] + "…")
        raise ValueError(f"{name} is {sql_type}, not {shown}: {error}; a right value is {reading.example}") from None


def has_values(key: bytes, columns: Sequence[tuple[str, str]]) -> Callable[[bytes], bool]:
    """Returns a test whether other keys have the values of this one, as PostgreSQL compares them.

    Args:
        key: a record key, or some of its columns.
        columns: the key's columns: name, and type as ``__schemas`` spells it.
    """
    wanted, normals = member_texts(key.decode()), _normals(columns)

    def is_wanted(other: bytes) -> bool:
        try:
            found = member_texts(other.decode())
        except ValueError:
            return False
        return all(
            name in found and (found[name] == value or (name in normals and _is_one(normals[name], found[name], value)))
            for name, value in wanted.items()
        )

    return is_wanted


def equal_keys(key: bytes, columns: Sequence[tuple[str, str]]) -> Callable[[bytes], bool] | None:
    """Returns ``has_values`` if PostgreSQL may treat a key in another spelling as equal; else None.

    ``1`` and ``1.0`` are equal in a ``numeric`` without a scale, and so are ``0`` and ``-0`` in floating point.
    """
    wanted = member_texts(key.decode())
    values = [wanted[name] for name in _normals(columns)]
    return has_values(key, columns) if any(each[0] == '"' or each in ("0", "-0") for each in values) else None


def compared_as_text(columns: Sequence[tuple[str, str]]) -> str:
    """Returns a sentence about columns whose values only a server can compare; empty if there are none."""
    found = [(name, sql_type) for name, sql_type in columns if reading_of(sql_type).identity is Identity.UNKNOWN]
    if not found:
        return ""
    name, sql_type = found[0]
    return (
        f"Values of {name} ({sql_type}) are compared as text. Write the key as PostgreSQL prints it, "
        "or an existing row may not be found."
    )


def _normals(columns: Sequence[tuple[str, str]]) -> Mapping[str, Read]:
    readings = {name: reading_of(sql_type) for name, sql_type in columns}
    return {name: each.normal for name, each in readings.items() if each.identity is Identity.VALUE}


def _is_one(normal: Read, one: str, other: str) -> bool:
    return "null" not in (one, other) and normal(_text(one)) == normal(_text(other))


def key_json(values: Sequence[Any], columns: Sequence[tuple[str, str]]) -> str:
    """Returns the key as a JSON object for ``written_values``, with floats as text, because JSON has no NaN.

    Args:
        values: the value of each key column, as JSON has it.
        columns: the key's columns in its order: name, and type as ``__schemas`` spells it.
    """
    pairs = zip(columns, values, strict=True)
    return "{" + ",".join(f"{_dumps(name)}:{_written(value, sql_type)}" for (name, sql_type), value in pairs) + "}"


def _written(value: Any, sql_type: str) -> str:
    kind, is_array, _ = kind_of(sql_type)
    return _dumps(str(value) if kind in FLOATS and not is_array else value)


def _dumps(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _text(raw: str) -> str:
    if raw == "null":
        raise ValueError("a key column cannot be NULL")
    return _STRING.decode(raw) if raw.startswith('"') else raw


def column_of(name: str, sql_type: str) -> Column:
    """Returns a key column of this type, as ``__schemas`` spells it, in the form in which the stream describes it."""
    match = _BUILT_IN.fullmatch(sql_type)
    if match is None:
        return Column(name, 0, -1, "other.type", True)  # a type that is not built in is a string
    base, dimensions = match.groups()
    return Column(name, 0, -1, f"{CATALOG}.{'_' if dimensions else ''}{'bpchar' if base == 'char' else base}", True)
