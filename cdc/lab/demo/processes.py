"""Bridge and sink as a user runs them: processes with a log file each, that can be killed and started again."""

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
    """``python -m cdc <command> -c <config>``; ends with this process, however that ends.

    Args:
        command: ``run`` or ``sink``.
        config: the YAML file.
        log: where its output goes, appended over all starts.
    """

    def __init__(self, command: str, config: Path, log: Path) -> None:
        self.command = command
        self.log = log
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 when it was not started, or was killed or stopped."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it. Call from the main thread: the life of the child is bound to the calling thread."""
        self._start({})

    def _start(self, extra_environment: Mapping[str, str]) -> None:
        assert self._process is None, f"cdc {self.command} runs already"
        arguments: list[str | Path] = [sys.executable, "-m", "cdc", self.command, "-c", self._config]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                CURRENT.command(arguments, death_signal=signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**_environment(), **extra_environment},
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle
            )

    def kill(self) -> None:
        """SIGKILL, as a machine failure would; returns when it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> int:
        """SIGTERM, and SIGKILL when that does not help in 20 seconds; the exit code."""
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
        """Make sure that it still runs, unless it was killed or stopped on purpose.

        Raises:
            StackError: it ended by itself; carries the end of its log.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            raise StackError(
                f"`cdc {self.command}` ended by itself with exit code {code}\n{self.tail()}",
                remedy="correct what the end of its log says, then start again",
            )

    def tail(self) -> str:
        """The end of the log, under the log's name."""
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
    """Poll until ``condition`` holds, while the daemons live; ``meanwhile`` is what to do between two looks.

    Raises:
        StackError: a daemon ended by itself, or the time is over; names ``what``.
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


def _environment() -> dict[str, str]:
    """Ours, but nothing that would override the configuration file."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CDC_")}
    return {**ours, "PYTHONUNBUFFERED": "1"}  # or SIGKILL would take the last lines of the log along
