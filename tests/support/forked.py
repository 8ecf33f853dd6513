"""``cdc`` as processes that start in milliseconds: forked from one that has imported everything.

They are processes like any other: they can be stopped, killed and signalled, and end with their exit code. What a fork
leaves out, the interpreter's start and the imports, is what the tests with real process starts are for.
"""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.support.bridge_process import CdcProcess
from tests.support.process_tree import status
from tests.support.waiting import within

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "cdc.cli.cli",
        "cdc.cli.run_command",
        "cdc.bridge.run",
        "cdc.cli.sink_command",
        "cdc.cli.backfill_command",
        "cdc.cli.status_command",
        "cdc.sink.apply.run",
        "tests.support.frozen",
        "tests.support.remedies",
    ]
)
_PR_SET_PDEATHSIG: Final = 1


class ForkedCdc(CdcProcess):
    """``CdcProcess`` without the interpreter's start."""

    def _start(self, extra_environment: Mapping[str, str]) -> None:
        assert self._process is None, f"cdc {self.command} runs already"
        self.log.touch()
        arguments = [self.command, "-c", str(self._config)]
        environment = {**_environment(), **extra_environment}
        self._process = _Child(arguments, self.log, self.log, environment)  # type: ignore[assignment]  # as much of Popen as is needed

    @property
    def is_stopped(self) -> bool:
        """Whether it stands at the crash point where it was to stop."""
        return bool(self.pid) and not self.ended and status(self.pid) == psutil.STATUS_STOPPED


def run_command(*arguments: str | Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; of what it prints, nothing is shown.

    Args:
        arguments: behind ``cdc``.
        timeout_s: longest time to wait for its end.
    """
    given = [str(each) for each in arguments]
    with tempfile.TemporaryDirectory(prefix="cdc-said-") as folder:
        outputs = Path(folder, "stdout"), Path(folder, "stderr")
        child = _Child(given, *outputs, _environment())
        try:
            code = child.wait(timeout_s)
        finally:
            child.kill()
        stdout, stderr = (each.read_text(encoding="utf-8") for each in outputs)
    return subprocess.CompletedProcess(given, code, stdout, stderr)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CDC_")}


class _Child:
    """As much of ``subprocess.Popen`` as is needed, of a forked process."""

    def __init__(self, arguments: list[str], stdout: Path, stderr: Path, environment: Mapping[str, str]) -> None:
        outputs = (str(stdout), str(stderr))
        self._process = _CONTEXT.Process(target=_run, args=(arguments, outputs, dict(environment)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("cdc", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()


def _run(arguments: list[str], outputs: tuple[str, str], environment: dict[str, str]) -> None:
    """The child's life: a session, outputs and an environment of its own, then what the ``cdc`` command does."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, output in enumerate(outputs, start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), number)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # or SIGKILL would take the last along
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["cdc", *arguments]
    from cdc.__main__ import main

    main()


def wait_stopped_or_ended(process: ForkedCdc, timeout_s: float) -> bool:
    """Wait until it stands at its crash point (True) or is gone (False); False as well when the time is over."""
    return within(lambda: process.is_stopped or process.ended, timeout_s) and process.is_stopped
