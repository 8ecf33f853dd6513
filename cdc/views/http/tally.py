"""Counts of answers, in memory that all processes of a service share.

Each process writes its own part and reads all parts, so ``/metrics`` shows the same in every process. A process that
replaces a dead one goes on with the dead one's counts: counters never fall.
"""

from __future__ import annotations

import multiprocessing
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from multiprocessing.context import SpawnContext
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from cdc.base.metrics import ServeNumbers

Page: TypeAlias = Literal["row", "rows", "batch", "count", "tables", "watch", "past", "other"]

PAGES: Final[tuple[Page, ...]] = get_args(Page)
CLASSES: Final = ("2xx", "3xx", "4xx", "5xx")
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds: around the millisecond that a lookup should take, up to the time limit of a request."""

_PLACE: Final = {page: place for place, page in enumerate(PAGES)}
_BUCKETS: Final = len(BOUNDS) + 1
_SECONDS: Final = len(PAGES) * len(CLASSES)
_SUMS: Final = _SECONDS + len(PAGES) * _BUCKETS
_OPEN: Final = _SUMS + len(PAGES)
_CUT: Final = _OPEN + 1
_WIDTH: Final = _CUT + 1


class SharedCells(NamedTuple):
    """The shared memory, and how many processes share it. It may be passed to a spawned process."""

    cells: Any
    processes: int


def shared_cells(processes: int) -> SharedCells:
    """Makes memory for the counts of that many processes."""
    context: SpawnContext = multiprocessing.get_context("spawn")
    return SharedCells(context.RawArray("d", processes * _WIDTH), processes)


class Tally:
    """Counts for one process, and sums over all processes.

    Args:
        shared: the memory.
        process: the number of this process's part, from 0.
    """

    def __init__(self, shared: SharedCells, process: int = 0) -> None:
        self._shared = shared
        self._cells = memoryview(shared.cells).cast("B").cast("d")  # counting takes half the time that ctypes needs
        self._start = process * _WIDTH
        self._cells[self._start + _OPEN] = 0.0  # the watches of a process that this one replaces are closed

    def answered(self, page: Page, status: int, seconds: float) -> None:
        """Counts an answered request."""
        place, cells, start = _PLACE[page], self._cells, self._start
        cells[start + place * 4 + status // 100 - 2] += 1
        cells[start + _SECONDS + place * _BUCKETS + bisect_left(BOUNDS, seconds)] += 1
        cells[start + _SUMS + place] += seconds

    def watches(self, change: int) -> None:
        """Changes the number of open watches by ``change``."""
        self._cells[self._start + _OPEN] += change

    def cut(self) -> None:
        """Counts a watch that was cut off because its client was too slow."""
        self._cells[self._start + _CUT] += 1

    def numbers(self) -> ServeNumbers:
        """Sums up the counts of all processes."""
        total = [self._sum(place) for place in range(_WIDTH)]
        requests: dict[tuple[str, str], float] = {
            (page, name): total[_PLACE[page] * 4 + place] for page in PAGES for place, name in enumerate(CLASSES)
        }
        seconds: dict[str, tuple[Sequence[tuple[str, float]], float]] = {
            page: (list(_buckets(total, page)), total[_SUMS + _PLACE[page]]) for page in PAGES
        }
        return ServeNumbers(requests, seconds, total[_OPEN], total[_CUT])

    def _sum(self, place: int) -> float:
        return float(sum(self._cells[process * _WIDTH + place] for process in range(self._shared.processes)))


def _buckets(total: list[float], page: Page) -> Iterator[tuple[str, float]]:
    """The cumulative buckets of Prometheus's histograms."""
    running = 0.0
    start = _SECONDS + _PLACE[page] * _BUCKETS
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), total[start : start + _BUCKETS], strict=True):
        running += count
        yield bound, running
