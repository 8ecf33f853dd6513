"""JSON that keeps numbers as they are spelled. Pure.

``0.1`` and ``0.10000000000000000001`` are one double but two keys of a jsonb column, and ``0`` and ``-0`` are one value
but two records. A number that is spelled as Python would print a double or an integer of 64 bits becomes a ``float`` or
an ``int``; any other becomes a ``Decimal``.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final, NoReturn

import orjson

_SHORT: Final = 18
"""Numbers of up to this many digits always fit into 64 bits."""


def loads(text: str | bytes) -> Any:
    """Parses JSON.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refuse)
    except (RecursionError, ArithmeticError):  # ArithmeticError: an exponent that Decimal cannot hold
        raise ValueError("it is nested too deeply, or a number in it is too large") from None


def dumps(value: Any) -> bytes:
    """Writes JSON without blanks, with sorted members.

    Raises:
        ValueError: the value cannot be written.
    """
    try:
        return orjson.dumps(value, default=_fragment, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the value cannot be sorted: {error}") from None


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
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
