"""What a process spends: CPU seconds of all its threads and its peak resident memory, sampled from outside."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import psutil

SAMPLE_INTERVAL_S = 0.05


class Usage(NamedTuple):
    """What a process has spent since its start.

    Attributes:
        cpu_s: CPU seconds of all its threads, user + system.
        rss_mb: peak resident memory, 10^6 bytes.
        core_wait_s: how long its main thread could have run and had no core: above a tenth of the time, somebody else
            disturbs the measurement. Zero where the system does not tell (Linux does).
    """

    cpu_s: float
    rss_mb: float
    core_wait_s: float


def usage(pid: int) -> Usage:
    """What a process has spent until now.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Usage(times.user + times.system, _peak_rss_bytes(process) / 1e6, _core_wait_s(pid))


def _peak_rss_bytes(process: psutil.Process) -> int:
    """Linux keeps the peak per program image; ``ru_maxrss`` would begin with the parent's memory at the fork."""
    status = Path(f"/proc/{process.pid}/status")
    with contextlib.suppress(OSError):
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return process.memory_info().rss


def _core_wait_s(pid: int) -> float:
    """Second number of schedstat: nanoseconds on the run queue."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Meter:
    """Samples processes in a thread, so that one which has ended keeps its last figures (``SAMPLE_INTERVAL_S`` old)."""

    def __init__(self) -> None:
        self._first: dict[int, Usage] = {}
        self._last: dict[int, Usage] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_stopped, name="meter")

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def watch(self, pid: int) -> None:
        """Take the process's figures now as its starting point; call again to move the starting point."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._first[pid] = self._last[pid] = usage(pid)

    def spent(self, pid: int) -> Usage:
        """Times since ``watch`` and peak memory, exact while the process lives; zeros if it never did."""
        if pid not in self._last:
            return Usage(0.0, 0.0, 0.0)
        self._sample(pid)
        first, last = self._first[pid], self._last[pid]
        return Usage(last.cpu_s - first.cpu_s, last.rss_mb, last.core_wait_s - first.core_wait_s)

    def total_cpu_s(self, pid: int) -> float:
        """CPU seconds since the process was started."""
        return self._last[pid].cpu_s

    def _sample_until_stopped(self) -> None:
        while not self._stop.wait(SAMPLE_INTERVAL_S):
            for pid in list(self._last):
                self._sample(pid)

    def _sample(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            now = usage(pid)
            # An exited process that nobody has waited for yet shows no memory, but its last CPU figures.
            self._last[pid] = now._replace(rss_mb=max(now.rss_mb, self._last[pid].rss_mb))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of the ascending values do not exceed."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]
