"""What a person writes as a key → the bytes of the record key, as the bridge makes them. Pure."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec

from cdc.change import Column
from cdc.contract.history import members
from cdc.encode.format import NOT_ENCODABLE
from cdc.encode.json_format import JSON
from cdc.kinds import FLOATS, INTEGERS, Kind, kind_of
from cdc.pgtypes import CATALOG

_BUILT_IN: Final = re.compile(r"([a-z0-9_]+)(?:\([^)]*\)| [a-z ()0-9]+)?((?:\[\])?)")
_INTEGER: Final = re.compile(r"-?[0-9]+")
_BOOLEANS: Final = {"true": "t", "false": "f", "t": "t", "f": "f"}
_STRING: Final = msgspec.json.Decoder(str)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_SINGLE: Final = struct.Struct(">f")
_BITS: Final = struct.Struct(">I")


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


def key_json(values: Sequence[Any], columns: Sequence[tuple[str, str]]) -> str:
    """The key as a JSON object whose values are written as the server writes them: ``1`` and ``1e+15``, not ``1.0``.

    Args:
        values: of each key column, as JSON has them.
        columns: of the key, in its order; name, and type as ``__schemas`` spells it.
    """
    pairs = zip(columns, values, strict=True)
    return "{" + ",".join(f"{_dumps(name)}:{_written(value, sql_type)}" for (name, sql_type), value in pairs) + "}"


def _written(value: Any, sql_type: str) -> str:
    kind, is_array, _ = kind_of(sql_type)
    if kind not in FLOATS or is_array:
        return _dumps(value)
    number = float(value)
    if not math.isfinite(number):
        return '"NaN"' if number != number else '"Infinity"' if number > 0 else '"-Infinity"'
    minus = "-" if math.copysign(1, number) < 0 else ""
    try:
        return minus + (_single(abs(number)) if kind is Kind.FLOAT32 else _double(abs(number)))
    except OverflowError:  # no value of that type: any text will do that is no key
        return minus + repr(abs(number))


def _double(size: float) -> str:
    return _float(size, math.nextafter(size, 0), math.nextafter(size, math.inf), 15)


def _single(size: float) -> str:
    """Numbers of 32 bits follow one another as their bits do."""
    bits = _BITS.unpack(_SINGLE.pack(size))[0]
    below, known, above = (_SINGLE.unpack(_BITS.pack(each))[0] for each in (max(bits - 1, 0), bits, bits + 1))
    return _float(known, below, above, 6)


def _float(size: float, below: float, above: float, fixed: int) -> str:
    """As PostgreSQL writes it (its d2s.c, f2s.c): the fewest digits that are nearer to it than to its neighbours.

    Args:
        size: not negative.
        below: its neighbour.
        above: likewise; it may be infinite.
        fixed: from so many digits before the point on with an exponent, as below 0.0001.
    """
    exact, low = Fraction(size), Fraction(below)
    high = Fraction(above) if math.isfinite(above) else 2 * exact - low
    texts = (f"{size:.{digits}g}" for digits in range(1, 18))
    shortest = next((text for text in texts if low < 2 * Fraction(text) - exact < high), "0")
    written = Decimal(shortest).normalize()
    places = written.adjusted()
    if written.is_zero() or -4 <= places < fixed:
        return format(written, "f")
    return f"{written.scaleb(-places):f}e{places:+03d}"


def _dumps(value: Any) -> str:
    return _ENCODER.encode(value).decode()


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
