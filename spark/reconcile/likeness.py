"""Says how two texts of one column differ, if they look like the same value treated differently. Pure."""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from cdc.contract.kinds import FLOATS, Kind, kind_of

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d{1,6})?([-+]\d\d(?::\d\d)?)?")
_QUARTER_S: Final = 15 * 60
_FARTHEST_S: Final = 14 * 3600
"""The time zone farthest from UTC."""


def likeness(source: str | None, topic: str | None, sql_type: str) -> str | None:
    """Returns how ``source`` became ``topic``, in words to follow "the topic's value …"; None for unrelated values.

    Args:
        source: the source's text; None for NULL.
        topic: the topic's text, which must differ from the source's; None for NULL.
        sql_type: the column's type, such as ``numeric(12,2)`` or ``text``.
    """
    if source is None or topic is None:
        return "is NULL where the source has a value" if topic is None else "is a value where the source has NULL"
    for look in (_as_numbers, _as_stamps, _as_texts):
        found = look(source, topic, sql_type)
        if found is not None:
            return found
    return None


def _as_numbers(source: str, topic: str, sql_type: str) -> str | None:
    kind = kind_of(sql_type).kind
    is_number = kind is Kind.DECIMAL or kind in FLOATS
    if not is_number or not (_NUMBER.fullmatch(source) and _NUMBER.fullmatch(topic)):
        return None
    here, there = Decimal(source), Decimal(topic)
    if kind in FLOATS:
        return _as_floats(source, topic, kind)
    if here == there:
        return "is the same number with a different scale (trailing zeros)"
    if _rounds_to(here, topic) or _rounds_to(there, source):
        return "is the same number rounded: digits were lost"
    return "is the same number as a double: digits were lost" if _same_float(source, topic, "d") else None


def _as_floats(source: str, topic: str, kind: Kind) -> str | None:
    if float(source) == float(topic):
        return "is the same number written differently"
    close = 1e-5 if kind is Kind.FLOAT32 else 1e-12
    here, there = float(source), float(topic)
    if abs(here - there) <= close * max(abs(here), abs(there)):
        return "is the same number rounded: digits were lost"
    return "is the same number as a float4: digits were lost" if _same_float(source, topic, "f") else None


def _same_float(source: str, topic: str, size: str) -> bool:
    try:
        return struct.pack(size, float(source)) == struct.pack(size, float(topic))
    except OverflowError:
        return False


def _rounds_to(exact: Decimal, rounded: str) -> bool:
    """Tells whether ``rounded`` is ``exact`` rounded or cut off: it has fewer digits and is less than one unit away."""
    short = Decimal(rounded)
    exponent, long_exponent = short.as_tuple().exponent, exact.as_tuple().exponent
    assert isinstance(exponent, int)  # the pattern admits neither NaN nor Infinity
    assert isinstance(long_exponent, int)
    return exponent > long_exponent and abs(exact - short) < Decimal((0, (1,), exponent))


def _as_stamps(source: str, topic: str, sql_type: str) -> str | None:
    if kind_of(sql_type).kind not in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return None
    shift = shift_s(source, topic)
    if shift is None:
        return None
    if shift == 0:
        return "is the same time written differently"
    if shift % _QUARTER_S == 0 and abs(shift) <= _FARTHEST_S:
        hours, minutes = divmod(abs(int(shift)) // 60, 60)
        return f"is {'later' if shift > 0 else 'earlier'} by {hours}:{minutes:02} hours: a time zone"
    return "is the same time with less precision" if abs(shift) < 1 and _is_cut(source, topic) else None


def shift_s(source: str, topic: str) -> float | None:
    """Returns the seconds from the source's timestamp to the topic's; None if either is not an ordinary timestamp."""
    here, there = _stamp(source), _stamp(topic)
    return None if here is None or there is None else (there - here).total_seconds()


def _stamp(text: str) -> datetime | None:
    match = _STAMP.fullmatch(text)
    if match is None:
        return None
    try:
        stamp = datetime.fromisoformat(f"{match[1]}T{match[2]}{(match[3] or '.0').ljust(7, '0')}{match[4] or '+00'}")
    except ValueError:
        return None
    return stamp.astimezone(UTC)


def _is_cut(source: str, topic: str) -> bool:
    def digits(text: str) -> int:
        match = _STAMP.fullmatch(text)
        return len(match[3] or "") if match else 0

    return digits(source) != digits(topic)


def _as_texts(source: str, topic: str, _: str) -> str | None:
    if source.rstrip(" ") == topic.rstrip(" "):
        return "differs in trailing blanks only"
    if _mended(topic) == source:
        return "is UTF-8 that was read as Latin-1 (mojibake)"
    if _mended(source) == topic:
        return "is right, but the source holds UTF-8 that was read as Latin-1 (mojibake)"
    if "\ufffd" in topic and "\ufffd" not in source:
        return "has characters that could not be decoded (U+FFFD)"
    if source.casefold() == topic.casefold():
        return "differs in upper and lower case only"
    return None


def _mended(text: str) -> str | None:
    """Undoes the damage of reading UTF-8 as Latin-1 or Windows-1252; returns None if there is no such damage."""
    for encoding in ("latin-1", "cp1252"):
        try:
            mended = text.encode(encoding).decode()
        except UnicodeError:
            continue
        if mended != text:
            return mended
    return None
