"""Turns counters at two moments into changes per second. Pure."""

from __future__ import annotations

from collections.abc import Mapping


class Rates:
    """Remembers the value of each counter at the last look."""

    def __init__(self) -> None:
        self._at = 0.0
        self._before: dict[str, float] = {}
        self._now: dict[str, float] = {}
        self._elapsed_s = 0.0

    def look(self, at: float) -> None:
        """Begin a new look.

        Args:
            at: seconds of a monotonic clock.
        """
        self._before, self._now = self._now, {}
        self._elapsed_s, self._at = at - self._at, at

    def of(self, name: str, value: float | None) -> float | None:
        """Returns the rate per second since the last look; None if the counter had no value then, or has been reset."""
        if value is None:
            return None
        self._now[name] = value
        before = self._before.get(name)
        if before is None or value < before or self._elapsed_s <= 0:
            return None
        return (value - before) / self._elapsed_s

    def of_each(self, name: str, values: Mapping[str, float]) -> dict[str, float]:
        """Returns the rate of each table that also had a value at the last look."""
        found = {table: self.of(f"{name} {table}", value) for table, value in values.items()}
        return {table: rate for table, rate in found.items() if rate is not None}
