"""The programs under measurement: started with their own log file, watched while they work, always stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

POLL_INTERVAL_S = 0.005
DRAIN_TIMEOUT_S = 60.0
LOG_TAIL_LINES = 15


class BenchmarkFailed(Exception):
    """A contender did not do its work; its figures would mean nothing."""


class Program:
    """A running command. ``pid`` is the process itself, so that its CPU and memory are no wrapper's."""

    def __init__(self, name: str, argv: Sequence[str | Path], log: Path) -> None:
        self.name, self._log = name, log
        # Its own session: Ctrl-C reaches the benchmark alone, which then stops everything in order.
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.pid = self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def must_run(self) -> None:
        """Raise if it has ended, with the end of its log."""
        if not self.running():
            raise BenchmarkFailed(f"{self.name} ended with {self._process.returncode}:\n{self._tail()}")

    def wait(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Wait for a good end."""
        if self._process.wait(timeout_s) != 0:
            self.must_run()

    def drain(self) -> None:
        """SIGTERM, and wait for a good end."""
        self._process.send_signal(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self._process.kill()
        self._process.wait()

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


@contextmanager
def program(name: str, argv: Sequence[str | Path], directory: Path) -> Iterator[Program]:
    """Run a command for the length of the block."""
    started = Program(name, argv, directory / f"{name.replace(' ', '-')}-{time.monotonic_ns()}.log")
    try:
        yield started
    finally:
        started.kill()


def wait_until(
    condition: Callable[[], bool], what: str, *, timeout_s: float = 600.0, interval_s: float = POLL_INTERVAL_S
) -> None:
    """Ask until the answer is yes; the one place of the benchmarks that sleeps between two questions.

    Raises:
        BenchmarkFailed: not within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"waited {timeout_s:.0f} s in vain for {what}")
        time.sleep(interval_s)
