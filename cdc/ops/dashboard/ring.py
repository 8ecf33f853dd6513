"""The last hours in a fixed amount of memory: samples of some numbers, the oldest overwritten by the newest. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

CAPACITY: Final = 960
"""Samples: four hours of one each 15 seconds, some 80 KB."""


class Ring:
    """Samples of several series, all taken at the same moments.

    Args:
        names: of the series.
        capacity: how many samples are kept.
    """

    def __init__(self, names: Sequence[str], capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._taken = 0
        self._at = array("d", [0.0]) * capacity
        self._series = {name: array("d", [math.nan]) * capacity for name in names}

    def __len__(self) -> int:
        return min(self._taken, self._capacity)

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """Take one sample; a value that nobody knows is a gap in its series."""
        place = self._taken % self._capacity
        self._at[place] = at
        for name, series in self._series.items():
            value = values.get(name)
            series[place] = math.nan if value is None else value
        self._taken += 1

    def document(self) -> dict[str, Any]:
        """All samples, oldest first: ``at`` in seconds since 1970, and a list for each series, with NaN for gaps."""
        return {
            "at": self._in_order(self._at),
            "series": {name: self._in_order(series) for name, series in self._series.items()},
        }

    def _in_order(self, column: array[float]) -> list[float]:
        if self._taken <= self._capacity:
            return column[: self._taken].tolist()
        start = self._taken % self._capacity
        return column[start:].tolist() + column[:start].tolist()
