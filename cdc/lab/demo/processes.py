"""Runs bridge and sink as a user would: as processes with log files, which can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cdc.base.errors import StackError
from cdc.lab.stack.account import CURRENT

_STOP_TIMEOUT_S: Final = 20.0
_TAIL_LINES: Final = 40
_POLL_INTERVAL_S: Final = 0.05


class Daemon:
    """The process ``python -m cdc <command> -c <config>``. It ends when this process ends, however that happens.

    Args:
        command: ``run`` or ``sink``.
        config: the configuration file.
        log: the file that gets its output; each start appends.
    """

    def __init__(self, command: str, config: Path, log: Path) -> None:
        self.command = command
        self.log = log
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 before the start, and after ``kill`` or ``stop``."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the process. Call this from the main thread: the child dies with the thread that started it."""
        self._start({})

    def _start(self, extra_environment: Mapping[str, str]) -> None:
        assert self._process is None, f"cdc {self.command} is already running"
        arguments: list[str | Path] = [sys.executable, "-m", "cdc", self.command, "-c", self._config]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                CURRENT.command(arguments, death_signal=signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment(), **extra_environment},
                start_new_session=True,  # Ctrl-C in the terminal must reach only this process
            )

    def kill(self) -> None:
        """Send SIGKILL, which ends the process as abruptly as a machine failure, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL if the process is still there after 20 seconds; returns the exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def check(self) -> None:
        """Make sure that the process is still running, unless it was killed or stopped on purpose.

        Raises:
            StackError: the process ended by itself; the message has the end of its log.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            raise StackError(
                f"`cdc {self.command}` ended by itself with exit code {code}\n{self.tail()}",
                remedy="fix what the end of its log says, then start again",
            )

    def tail(self) -> str:
        """Returns the end of the log, with the log's name above it."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"--- end of {self.log}", *lines[-_TAIL_LINES:]])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def wait_for(
    what: str,
    condition: Callable[[], bool],
    daemons: Iterable[Daemon],
    timeout_s: float,
    meanwhile: Callable[[], None] = lambda: time.sleep(_POLL_INTERVAL_S),
) -> None:
    """Poll until ``condition`` holds, and check that the daemons live; call ``meanwhile`` between two polls.

    Raises:
        StackError: a daemon ended by itself, or ``what`` did not appear in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        for daemon in daemons:
            daemon.check()
        if time.monotonic() > deadline:
            raise StackError(
                "\n".join([f"no {what} after {timeout_s:g} s", *(daemon.tail() for daemon in daemons)]),
                remedy="read the logs above; on a slow machine, start again",
            )
        meanwhile()


def environment() -> dict[str, str]:
    """Returns this process's environment, without variables that would override the configuration file."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CDC_")}
    return {**ours, "PYTHONUNBUFFERED": "1"}  # otherwise the last lines of the log would be lost with SIGKILL
