"""Exports the slot as metrics, in each process that may ask the source: WAL fills the disk just when no bridge runs."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from cdc.base.metrics import WAL_STATUSES, SlotMetrics
from cdc.contract.slot_state import SlotState

_RATE_S: Final = 300.0
"""The span over which the rate is taken. A checkpoint or a batch job is shorter, and does not make a trend."""


class SlotMeter:
    """Exports one slot. Before the first look nothing is known, and a 0 would raise an alarm, so it exports NaN.

    Args:
        metrics: the process's metrics.
        bridge: the name of the slot's bridge, if the process exports several.
        clock: returns seconds, and never goes back.
    """

    def __init__(
        self, metrics: SlotMetrics, bridge: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        def child(metric: Any) -> Any:
            return metric if bridge is None else metric.labels(bridge)

        self._clock = clock
        self._gauges = [child(each) for each in metrics.gauges()]
        self._status = child(metrics.wal_status)
        self._room: deque[tuple[float, int]] = deque()
        self.look(None)

    def look(self, state: SlotState | None) -> None:
        """Export the slot as the server sees it; None when it is unknown or missing. May be called from any thread."""
        if state is None:
            values: list[float] = [math.nan] * len(self._gauges)
        else:
            unknown = math.nan
            values = [
                unknown if state.retained_bytes is None else state.retained_bytes,
                math.inf if state.safe_wal_size is None else state.safe_wal_size,
                self._seconds_to_full(state.safe_wal_size),
                unknown if state.lag_bytes is None else state.lag_bytes,
                state.active,
                state.lost,
            ]
            if state.wal_status in WAL_STATUSES:
                self._status.state(state.wal_status)
        for gauge, value in zip(self._gauges, values, strict=True):
            gauge.set(value)

    def _seconds_to_full(self, room: int | None) -> float:
        """Returns the seconds until no room is left, at the recent rate; a bridge that confirms makes room again."""
        if room is None:
            self._room.clear()
            return math.inf
        now = self._clock()
        self._room.append((now, room))
        while now - self._room[0][0] > _RATE_S:
            self._room.popleft()
        began, before = self._room[0]
        shrunk = before - room
        return max(room, 0) * (now - began) / shrunk if shrunk > 0 else math.inf
