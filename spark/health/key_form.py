"""Finds keys with different bytes that are one logical key: brings JSON keys into a form that is equal if they are.

Blanks, escapes, the order of members and the spelling of numbers do not count, nor whether a number is written as a
string. But two strings never count as the same number (``"1.0"`` and ``"1"`` are two keys of a text column) unless the
column is numeric.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any


def logical_form(key: bytes, numeric: Collection[str] = ()) -> str | None:
    """Returns the form, or None if the bytes are not a JSON object.

    Args:
        key: any bytes.
        numeric: the members of numeric columns, where a string counts as a number.
    """
    try:
        members = json.loads(key, parse_int=_number, parse_float=_number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    for name in numeric:
        if isinstance(members.get(name), str):
            members[name] = _number(members[name])
    return json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _number(text: str) -> str:
    """Writes a number without trailing zeros, and with an exponent only if it would be very long otherwise."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite():
        return text
    # normalize() would round to the context's 28 digits.
    sign, digits, exponent = number.as_tuple()
    trimmed = "".join(map(str, digits)).lstrip("0")
    kept = trimmed.rstrip("0")
    if not kept:
        return "0"
    power = int(exponent) + len(trimmed) - len(kept)
    minus = "-" if sign else ""
    if 0 <= power <= 64:
        return f"{minus}{kept}{'0' * power}"
    return f"{minus}{kept}e{power}"


def _refuse(word: str) -> Any:
    raise ValueError(word)
