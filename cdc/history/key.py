"""What a person writes as a key → the bytes of the record key, as the bridge makes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from cdc.change import Column
from cdc.contract.history import members
from cdc.encode.format import NOT_ENCODABLE
from cdc.encode.json_format import JSON
from cdc.errors import ConfigError
from cdc.kinds import INTEGERS, Kind, kind_of
from cdc.pgtypes import CATALOG
from cdc.record import TableSchema

_BUILT_IN: Final = re.compile(r"([a-z0-9_]+)(?:\([^)]*\)| [a-z ()0-9]+)?((?:\[\])?)")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_BOOLEANS: Final = {"true": "t", "false": "f", "t": "t", "f": "f"}
_STRING: Final = msgspec.json.Decoder(str)


def record_key(text: str, schemas: Sequence[TableSchema]) -> bytes:
    """The key that a person means.

    Args:
        text: ``{"id":1}``, or ``id=1,region=eu``; values as the server writes them.
        schemas: definitions of the table, the newest last; an older one counts when its key has these columns.

    Raises:
        ConfigError: not such a text, other columns, or a value that is not of its type's form.
    """
    values = _values(text)
    schema = next((each for each in reversed(schemas) if set(each.key) == values.keys()), None)
    if schema is None:
        wanted = schemas[-1].key
        raise ConfigError(
            f"--key names ({', '.join(values)}), the key of {schemas[-1].namespace}.{schemas[-1].name} is "
            f"({', '.join(wanted)})",
            remedy="write " + ",".join(f"{name}=…" for name in wanted),
        )
    types = {column.name: column.sql_type for column in schema.columns}
    columns = [_column(name, types[name]) for name in schema.key]
    texts = []
    for column in columns:
        value = values[column.name]
        kind, is_array, _ = kind_of(types[column.name])
        if is_bool := kind is Kind.BOOL and not is_array:
            value = _BOOLEANS.get(value, "")
        is_integer = kind in INTEGERS and not is_array
        if (is_bool and not value) or (is_integer and not _INTEGER.fullmatch(value)):
            raise ConfigError(f"--key: {column.name} is {types[column.name]}, not {values[column.name]!r}")
        texts.append(value.encode())
    try:
        return JSON.writer(columns).encode(tuple(texts))
    except NOT_ENCODABLE as error:
        raise ConfigError(f"--key {text}: a value is not of its column's type ({error})") from error


def _values(text: str) -> Mapping[str, str]:
    """Server text by column."""
    if text.lstrip().startswith("{"):
        try:
            found = {name: _text(raw) for name, raw in members(text).items()}
        except ValueError as error:
            raise ConfigError(f"--key {text}: not a JSON object ({error})", remedy=_remedy()) from error
    else:
        pairs = [pair.partition("=") for pair in text.split(",")]
        if not all(name and mark for name, mark, _ in pairs):
            raise ConfigError(f"--key {text}: neither a JSON object nor column=value", remedy=_remedy())
        found = {name.strip(): value for name, _, value in pairs}
    return found


def _text(raw: str) -> str:
    if raw == "null":
        raise ValueError("NULL is no key")
    return _STRING.decode(raw) if raw.startswith('"') else raw


def _column(name: str, sql_type: str) -> Column:
    match = _BUILT_IN.fullmatch(sql_type)
    if match is None:
        return Column(name, 0, -1, "other.type", True)  # all that is not built in is a string
    base, dimensions = match.groups()
    return Column(name, 0, -1, f"{CATALOG}.{'_' if dimensions else ''}{'bpchar' if base == 'char' else base}", True)


def _remedy() -> str:
    return """write --key '{"id":1}' or --key id=1,region=eu (JSON when a value holds a comma)"""
