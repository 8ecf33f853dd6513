"""JSON whose numbers stay what they are written like. Pure.

``0.1`` and ``0.10000000000000000001`` are one double and two keys of a jsonb column, and ``0`` and ``-0`` are one value
and two records. A number that is spelled as a double or an integer of 64 bits would be, is one; any other is a
``Decimal``.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final, NoReturn

import orjson

_SHORT: Final = 18
"""Digits that surely fit into 64 bits."""


def loads(text: str | bytes) -> Any:
    """What the text says.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refuse)
    except (RecursionError, ArithmeticError):  # the latter of an exponent that no number has
        raise ValueError("it is nested too deeply, or a number in it is too large") from None


def dumps(value: Any) -> bytes:
    """Without blanks, members sorted.

    Raises:
        ValueError: it cannot be written.
    """
    try:
        return orjson.dumps(value, default=_fragment, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"it does not sort: {error}") from None


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= _SHORT and text != "-0" else _whole(text)


def _whole(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if number and abs(number) < 2**63 else number


def _float(text: str) -> float | Decimal:
    number = float(text)
    return number if orjson.dumps(number) == text.encode() else Decimal(text)


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} is nothing that JSON can say")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
