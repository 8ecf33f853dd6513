"""Two byte-keys, one logical key: the form in which JSON keys that mean the same are the same text.

Blanks, escapes, order of members and the rendering of numbers do not count, nor does a number written as a string. Two
strings are never taken for one number, ``"1.0"`` and ``"1"`` are two keys of a text column, unless the column is
numeric.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any


def logical_form(key: bytes, numeric: Collection[str] = ()) -> str | None:
    """The form, or None when the bytes are no JSON object.

    Args:
        key: any bytes.
        numeric: members whose strings are numbers, too.
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
    """Digits without trailing zeros and without an exponent that two writers could choose differently."""
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
