"""Bridge and sink as a user runs them: processes that a test starts, kills and listens to."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

import psutil

from cdc.lab.demo.processes import Daemon
from tests.support.waiting import eventually

_EXIT_TIMEOUT_S: Final = 60.0


class CdcProcess(Daemon):
    """The demo's daemon, with what a test asks of one. ``CDC_…`` variables of this process count for it, too."""

    def __init__(self, command: str, config: Path, log: Path) -> None:
        super().__init__(command, config, log)
        self._said_before = 0

    def start(self, *, crashpoint: str = "") -> None:
        """Start it, to die at ``crashpoint`` (``name:n``, see ``cdc.base.crashpoints``). Call from the main thread."""
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        extra = {"CDC_CRASHPOINT": crashpoint} if crashpoint else {}
        self._start({**os.environ, "PYTHONFAULTHANDLER": "1", **extra})

    def restart(self, *, crashpoint: str = "") -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start(crashpoint=crashpoint)

    @property
    def ended(self) -> bool:
        """Whether it was started and ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, timeout_s: float = _EXIT_TIMEOUT_S) -> int:
        """Its exit code, negative for a signal.

        Raises:
            AssertionError: it still runs.
        """
        assert self._process is not None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            said = "\n".join([self.tail(), self.stacks()])
            raise AssertionError(f"cdc {self.command} still runs after {timeout_s:g} s\n{said}") from None
        self._process = None
        return code

    def stop(self) -> int:
        """SIGTERM, and see it drain and exit with 0."""
        self.signal(signal.SIGTERM)
        code = self.wait()
        assert code == 0, f"cdc {self.command} exited with {code} after SIGTERM\n{self.tail()}"
        return code

    def refusal(self, code: int, timeout_s: float = _EXIT_TIMEOUT_S) -> str:
        """What it said on its way to this exit code."""
        got = self.wait(timeout_s)
        assert got == code, f"cdc {self.command} exited with {got}, not {code}\n{self.tail()}"
        said = self.said()
        assert "Traceback" not in said, said
        return said

    def stacks(self) -> str:
        """What each of its threads was doing; ends it. For the message of a test that waited in vain."""
        if self._process is None or self.ended:
            return ""
        before = self.log.stat().st_size
        self.signal(signal.SIGABRT)
        self._process.wait(_EXIT_TIMEOUT_S)
        self._process = None
        with self.log.open("rb") as log:
            log.seek(before)
            return log.read().decode(errors="replace")

    def said(self) -> str:
        """Its output since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            return log.read().decode(errors="replace")

    def wait_said(self, text: str, timeout_s: float = 30) -> None:
        """Wait until it has said ``text`` since the last start."""
        eventually(lambda: text in self.said() or self.ended, timeout_s, lambda: f"{text!r}\n{self.tail()}")
        assert text in self.said(), f"cdc {self.command} ended and never said {text!r}\n{self.tail()}"

    def peak_rss_bytes(self) -> int:
        """The most memory it had so far (``VmHWM``)."""
        status = Path(f"/proc/{self.pid}/status")
        if not status.exists():  # no Linux: what it has now
            return int(psutil.Process(self.pid).memory_info().rss)
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
