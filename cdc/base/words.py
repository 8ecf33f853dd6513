"""Formats numbers, durations, sizes and times for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_FOR_EVER_MS: Final = 100 * 365 * 86_400_000


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun: ``1 key``, ``2,000 keys``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(milliseconds: int) -> str:
    """Returns a duration in the largest unit of which it has at least one and a half."""
    if milliseconds >= _FOR_EVER_MS:
        return "for ever"
    for unit, size in _UNITS:
        if milliseconds >= 1.5 * size:
            return f"{milliseconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{milliseconds:,} ms"


def size(count: int) -> str:
    """Returns a number of bytes in binary units."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def moment(milliseconds: int | None) -> str:
    """Returns a time in ISO 8601, in UTC and to the second; ``never`` for None."""
    if milliseconds is None:
        return "never"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
