"""How fast the source wrote WAL before anybody looked, as the newest records of the progress topic tell it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from cdc.contract.record import Progress

STEP_S: Final = 15.0
"""Between two samples, and what the newest one is an average of."""


class WrittenWal:
    """Commits of the source, of which each was published at an LSN.

    Args:
        published: progress of the stream, oldest first.
    """

    def __init__(self, published: Iterable[Progress]) -> None:
        self._at: list[float] = []
        self._lsn: list[int] = []
        for each in published:
            at = each.commit_ts / 1_000_000
            # A stream that stands still repeats its last commit; one that began anew may tell of an earlier one.
            if at > 0 and (not self._at or (at > self._at[-1] and each.lsn >= self._lsn[-1])):
                self._at.append(at)
                self._lsn.append(int(each.lsn))

    def rate(self, now: float) -> float | None:
        """Bytes a second, on average over the last step; None when no two commits tell.

        Args:
            now: seconds since 1970.
        """
        return self._between(max(now - STEP_S, self._at[0]), self._at[-1]) if self._at else None

    def samples(self, now: float) -> list[tuple[float, float]]:
        """Moments a step apart, up to one before ``now``, and bytes a second of the step that ends there."""
        if not self._at:
            return []
        steps = range(int((now - self._at[0]) / STEP_S), 0, -1)
        found = ((now - step * STEP_S, self._between(now - (step + 1) * STEP_S, now - step * STEP_S)) for step in steps)
        return [(at, rate) for at, rate in found if rate is not None]

    def _between(self, begin: float, end: float) -> float | None:
        if not self._at[0] <= begin < end <= self._at[-1]:
            return None
        return (self._lsn_at(end) - self._lsn_at(begin)) / (end - begin)

    def _lsn_at(self, at: float) -> float:
        """Between two commits, as if WAL had been written evenly."""
        place = bisect_left(self._at, at)
        if self._at[place] == at:
            return self._lsn[place]
        share = (at - self._at[place - 1]) / (self._at[place] - self._at[place - 1])
        return self._lsn[place - 1] + share * (self._lsn[place] - self._lsn[place - 1])
