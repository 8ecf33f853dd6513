"""Converts dates, times and intervals from the way people write them to PostgreSQL's output (ISO, UTC). Pure.

Python's ``datetime`` covers the years 1 to 9999, PostgreSQL's types 4714 BC to 294276 and beyond. So this module does
its own calendar arithmetic.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

_DAY_US: Final = 86_400_000_000
_DATE: Final = r"(?P<year>[0-9]{4,7})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
_TIME: Final = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?)?"
_ZONE: Final = (
    r"(?P<zone>[Zz]|(?P<sign>[+-])(?:(?P<hours>[0-9]{1,2})(?::(?P<minutes>[0-9]{2})(?::(?P<seconds>[0-9]{2}))?)?"
    r"|(?P<digits>[0-9]{4})))"
)
_BC: Final = r"(?P<bc> [Bb][Cc])?"
_is_date = re.compile(_DATE + _BC).fullmatch
_is_time = re.compile(rf"{_TIME}(?: ?{_ZONE})?").fullmatch
_is_timestamp = re.compile(rf"{_DATE}(?:[Tt ]{_TIME}(?: ?{_ZONE})?)?{_BC}").fullmatch
_INFINITE: Final = ("infinity", "-infinity")
_BLANKS: Final = " \t\n\r\v\f"

_FORM: Final = "write it as in the example"
_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def canonical_date(text: str) -> str:
    """Returns a date as PostgreSQL prints it: ``2026-01-01``, ``0044-03-15 BC``.

    Raises:
        ValueError: not a date, or not in this form.
    """
    stripped = text.strip(_BLANKS)
    if (lower := stripped.lower()) in _INFINITE:
        return lower
    match = _is_date(stripped)
    return _date(_day_of(match, _LAST_DATE)) if match is not None else _refuse()


def canonical_time(text: str, *, has_zone: bool, places: int) -> str:
    """Returns a time as PostgreSQL prints it: ``12:30:00.5``, with a zone ``12:30:00.5+02`` (UTC if none is written).

    Raises:
        ValueError: not a time, not in this form, or with more digits than the type keeps.
    """
    match = _is_time(text.strip(_BLANKS))
    if match is None:
        _refuse()
    micros = _micros(match, places)
    if micros > _DAY_US:
        raise ValueError("a day ends at 24:00:00")
    offset = _offset(match)
    if not has_zone:
        return _clock(micros) if not offset else _refuse_offset()
    return _clock(micros) + _zone(offset or 0)


def canonical_timestamp(text: str, *, has_zone: bool, places: int) -> str:
    """Returns a timestamp: ``2026-01-01 12:30:00.5``; for a type with time zone, in UTC: ``2026-01-01 12:30:00.5+00``.

    Raises:
        ValueError: there is no such moment, it is not in this form, or it has more digits than the type keeps.
    """
    stripped = text.strip(_BLANKS)
    if (lower := stripped.lower()) in _INFINITE:
        return lower
    match = _is_timestamp(stripped)
    if match is None:
        _refuse()
    offset = _offset(match)
    if offset and not has_zone:
        _refuse_offset()
    micros = 0 if match["hour"] is None else _micros(match, places)
    moment = _day_of(match, _LAST_DATE) * _DAY_US + micros - (offset or 0) * 1_000_000
    day, micros = divmod(moment, _DAY_US)
    if not _FIRST <= day <= _LAST_TIMESTAMP:
        raise ValueError("it is outside the range of PostgreSQL's timestamps")
    shown = _date(day)
    date, bc = shown[: -len(" BC")] if shown.endswith(" BC") else shown, shown.endswith(" BC")
    return f"{date} {_clock(micros)}{'+00' if has_zone else ''}{' BC' if bc else ''}"


def _refuse() -> NoReturn:
    raise ValueError(_FORM)


def _refuse_offset() -> NoReturn:
    raise ValueError("the type has no time zone, so leave the offset out")


def _days(year: int, month: int, day: int) -> int:
    """Returns the days since 1970-01-01 in the proleptic Gregorian calendar; the year before 1 is 0."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _date(days: int) -> str:
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = (shifted + 2) % 12 + 1
    year += era * 400 + (month <= 2)
    return f"{year:04d}-{month:02d}-{day:02d}" if year > 0 else f"{1 - year:04d}-{month:02d}-{day:02d} BC"


_FIRST: Final = _days(-4713, 11, 24)
_LAST_DATE: Final = _days(5_874_897, 12, 31)
_LAST_TIMESTAMP: Final = _days(294_276, 12, 31)


def _day_of(match: re.Match[str], last: int) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    if not year:
        raise ValueError("there is no year 0: before 1 comes 1 BC")
    year = 1 - year if match["bc"] else year
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _LENGTHS[month - 1] + (month == 2 and is_leap):
        raise ValueError("the calendar has no such day")
    found = _days(year, month, day)
    if not _FIRST <= found <= last:
        raise ValueError("it is outside the range of PostgreSQL's dates")
    return found


def _micros(match: re.Match[str], places: int) -> int:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    fraction = (match["fraction"] or "").rstrip("0")
    if len(fraction) > places:
        raise ValueError(f"it has more than {places} digits after the second, and is not rounded")
    found = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction.ljust(6, "0"))
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and found > _DAY_US):
        raise ValueError("there is no such time of day")
    return found


def _offset(match: re.Match[str]) -> int | None:
    """Returns the offset in seconds east of UTC; None if none is written."""
    if match["zone"] is None:
        return None
    hours, minutes, seconds = (int(match[name] or 0) for name in ("hours", "minutes", "seconds"))
    if (digits := match["digits"]) is not None:
        hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 15 or minutes > 59 or seconds > 59:
        raise ValueError("the offset from UTC is at most 15:59:59")
    size = (hours * 60 + minutes) * 60 + seconds
    return -size if match["sign"] == "-" else size


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _zone(offset: int) -> str:
    minutes, second = divmod(abs(offset), 60)
    hour, minute = divmod(minutes, 60)
    text = f"{'-' if offset < 0 else '+'}{hour:02d}"
    return f"{text}:{minute:02d}:{second:02d}" if second else f"{text}:{minute:02d}" if minute else text


_INTERVAL: Final = re.compile(
    r"(?:([+-]?[0-9]+) years?)?(?: ?([+-]?[0-9]+) mons?)?(?: ?([+-]?[0-9]+) days?)?"
    r"(?: ?([+-]?)([0-9]{2,}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)


def canonical_interval(text: str) -> str:
    """Returns an interval that is written exactly as PostgreSQL prints it.

    Other spellings are refused: PostgreSQL prints ``1 mon`` and ``30 days`` differently although they are equal.

    Raises:
        ValueError: not in this form.
    """
    return text if text in _INFINITE else interval_text(*interval_parts(text))  # infinite from PostgreSQL 17 on


def interval_parts(text: str) -> tuple[int, int, int]:
    """Returns months, days and microseconds of an interval that is written exactly as PostgreSQL prints it.

    Raises:
        ValueError: not in this form, or infinite.
    """
    match = _INTERVAL.fullmatch(text)
    if match is None or not text:
        _refuse()
    years, months, days = (int(match[place] or 0) for place in (1, 2, 3))
    micros = 0
    if match[5] is not None:
        whole = (int(match[5]) * 60 + int(match[6])) * 60 + int(match[7])
        micros = whole * 1_000_000 + int((match[8] or "").ljust(6, "0"))
    parts = years * 12 + months, days, -micros if match[4] == "-" else micros
    if (shown := interval_text(*parts)) != text:
        raise ValueError(f"write it as PostgreSQL does: {shown}")
    return parts


def interval_text(months: int, days: int, micros: int) -> str:
    """Returns the text in ``IntervalStyle`` postgres: after a negative field, a positive one has its sign, too."""
    size = abs(months)
    years, rest = (size // 12, size % 12) if months >= 0 else (-(size // 12), -(size % 12))
    parts: list[str] = []
    was_negative = False
    for value, unit in ((years, "year"), (rest, "mon"), (days, "day")):
        if value:
            sign = "+" if was_negative and value > 0 else ""
            parts.append(f"{sign}{value} {unit}{'' if value == 1 else 's'}")
            was_negative = value < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if was_negative else ""
        parts.append(sign + _clock(abs(micros)))
    return " ".join(parts)
