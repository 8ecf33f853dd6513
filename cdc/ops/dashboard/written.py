"""How fast the source wrote WAL before the first look, computed from the newest records of the progress topic. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from cdc.contract.record import Progress

STEP_S: Final = 15.0
"""The time between two samples. Each sample is the average over this time."""


class WrittenWal:
    """The source's WAL position over time, from published commits.

    Args:
        published: the stream's progress, oldest first.
    """

    def __init__(self, published: Iterable[Progress]) -> None:
        self._at: list[float] = []
        self._lsn: list[int] = []
        for each in published:
            at = each.commit_ts / 1_000_000
            # An idle stream repeats its last commit, and a stream that started again may report an earlier one.
            if at > 0 and (not self._at or (at > self._at[-1] and each.lsn >= self._lsn[-1])):
                self._at.append(at)
                self._lsn.append(int(each.lsn))

    def rate(self, now: float) -> float | None:
        """Returns the average bytes per second over the last step; None with fewer than two commits in it.

        Args:
            now: seconds since 1970.
        """
        return self._between(max(now - STEP_S, self._at[0]), self._at[-1]) if self._at else None

    def samples(self, now: float) -> list[tuple[float, float]]:
        """Returns moments, a step apart, up to a step before ``now``, each with the bytes per second of its step."""
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
        """Interpolate the LSN at a moment between two commits."""
        place = bisect_left(self._at, at)
        if self._at[place] == at:
            return self._lsn[place]
        share = (at - self._at[place - 1]) / (self._at[place] - self._at[place - 1])
        return self._lsn[place - 1] + share * (self._lsn[place] - self._lsn[place - 1])
