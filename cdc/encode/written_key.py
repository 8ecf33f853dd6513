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
from cdc.kinds import INTEGERS, Kind, kind_of
from cdc.pgtypes import CATALOG

_BUILT_IN: Final = re.compile(r"([a-z0-9_]+)(?:\([^)]*\)| [a-z ()0-9]+)?((?:\[\])?)")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_BOOLEANS: Final = {"true": "t", "false": "f", "t": "t", "f": "f"}
_STRING: Final = msgspec.json.Decoder(str)


def written_values(text: str) -> Mapping[str, str]:
    """Server text by column.

    Args:
        text: ``{"id":1}``, or ``id=1,region=eu``; values as the server writes them.

    Raises:
        ValueError: neither of them.
    """
    if text.lstrip().startswith("{"):
        try:
            return {name: _text(raw) for name, raw in members(text).items()}
        except ValueError as error:
            raise ValueError(f"not a JSON object ({error})") from error
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and mark for name, mark, _ in pairs):
        raise ValueError("neither a JSON object nor column=value")
    return {name.strip(): value for name, _, value in pairs}


def key_bytes(values: Mapping[str, str], columns: Sequence[tuple[str, str]]) -> bytes:
    """The record key.

    Args:
        values: server text of each key column.
        columns: of the key, in its order; name, and type as ``__schemas`` spells it.

    Raises:
        ValueError: a value is not of its type's form.
    """
    texts = []
    for name, sql_type in columns:
        value = values[name]
        kind, is_array, _ = kind_of(sql_type)
        if is_bool := kind is Kind.BOOL and not is_array:
            value = _BOOLEANS.get(value, "")
        is_integer = kind in INTEGERS and not is_array
        if (is_bool and not value) or (is_integer and not _INTEGER.fullmatch(value)):
            raise ValueError(f"{name} is {sql_type}, not {values[name]!r}")
        texts.append(value.encode())
    try:
        return JSON.writer([_column(name, sql_type) for name, sql_type in columns]).encode(tuple(texts))
    except NOT_ENCODABLE as error:
        raise ValueError(f"a value is not of its column's type ({error})") from error


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
