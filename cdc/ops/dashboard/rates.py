"""Counters at two moments → changes a second. Pure."""

from __future__ import annotations

from collections.abc import Mapping


class Rates:
    """Remembers each counter as it was at the last look."""

    def __init__(self) -> None:
        self._at = 0.0
        self._before: dict[str, float] = {}
        self._now: dict[str, float] = {}
        self._elapsed_s = 0.0

    def look(self, at: float) -> None:
        """A new look begins.

        Args:
            at: seconds, by a clock that never goes back.
        """
        self._before, self._now = self._now, {}
        self._elapsed_s, self._at = at - self._at, at

    def of(self, name: str, value: float | None) -> float | None:
        """A second, since the look before; None when it was not counted then, or a restart began to count anew."""
        if value is None:
            return None
        self._now[name] = value
        before = self._before.get(name)
        if before is None or value < before or self._elapsed_s <= 0:
            return None
        return (value - before) / self._elapsed_s

    def of_each(self, name: str, values: Mapping[str, float]) -> dict[str, float]:
        """Of each table that was counted before."""
        found = {table: self.of(f"{name} {table}", value) for table, value in values.items()}
        return {table: rate for table, rate in found.items() if rate is not None}
