"""Converts timestamps between the server's text and microseconds since 1970, for the years 1 to 9999. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
"""Makes the shape of a text: each digit becomes a zero."""
CLOCKS: Final = (b"00:00:00", *(b"00:00:00." + b"0" * places for places in range(1, 7)))
"""The shapes of times of day."""

_EPOCH: Final = datetime(1970, 1, 1)
_ZERO: Final = ord("0")


def micros_of(zone: bytes) -> Callable[[bytes], int | None]:
    """Returns a function from timestamps to microseconds; it returns None for a text that has another form.

    Args:
        zone: the offset from UTC with which all timestamps end; empty for those without time zone.
    """
    # Python also reads other forms, so the text is compared with those that the server prints
    parse = datetime.fromisoformat
    shapes = frozenset(b"0000-00-00 " + clock + zone for clock in CLOCKS)
    end = -len(zone) or None

    def micros(cell: bytes) -> int | None:
        if cell.translate(DIGITS_AS_ZEROS) not in shapes or not cell.endswith(zone):
            return None
        text = cell[:end]
        if (text[-1] == _ZERO and len(text) > 19) or text[11:13] == b"24":  # from 3.13 on, Python reads 24:00:00
            return None
        try:
            since = parse(text.decode()) - _EPOCH
        except ValueError:
            return None
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    return micros


def moment(micros: int) -> str:
    """Returns a timestamp as PostgreSQL prints it, without zeros at its end.

    Raises:
        ValueError: it is outside of the years 1 to 9999.
    """
    try:
        text = (_EPOCH + timedelta(0, 0, micros)).isoformat(" ")
    except OverflowError:
        raise ValueError(f"the timestamp is outside the years 1 to 9999: {micros} µs since 1970") from None
    return text.rstrip("0") if len(text) > 19 else text
