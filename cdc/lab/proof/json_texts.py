"""Writes values that a foreign reader made of a row as the topic contract writes them in JSON."""

from __future__ import annotations

import struct
from decimal import Decimal
from math import isfinite
from typing import Final

_SINGLE: Final = struct.Struct(">f")


def moment_text(text: str) -> str:
    """Returns the text of a time without zeros at its end."""
    return text.rstrip("0") if "." in text else text


def number_text(value: float, *, is_single: bool) -> str:
    """Returns a number as PostgreSQL prints it: the fewest digits, and an exponent if it is large or small."""
    if not isfinite(value):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    digits = next(
        text
        for places in range(18)
        if (text := f"{value:.{places}e}") and (_single(float(text)) if is_single else float(text)) == value
    )
    mantissa, exponent = digits.split("e")
    if -4 <= int(exponent) < (6 if is_single else 15):
        return format(Decimal(digits), "f")
    return f"{mantissa}e{int(exponent):+03d}"


def _single(value: float) -> float:
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:  # beyond the greatest float4
        return float("inf")
