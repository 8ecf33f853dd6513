"""``cdc serve`` as a user runs it: a process, the processes that it starts, and a client that asks them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import orjson
import psutil

from cdc.lab.demo.processes import environment
from cdc.lab.stack.account import CURRENT
from tests.support.bridge_process import CdcProcess
from tests.support.process_tree import arguments
from tests.support.waiting import eventually


class ServeProcess(CdcProcess):
    """A service.

    Args:
        config: the YAML file.
        log: where its output goes.
        options: of the command line.
        command: another one that takes options.
    """

    def __init__(self, config: Path, log: Path, *options: str, command: str = "serve") -> None:
        super().__init__(command, config, log)
        self._options = options

    def _start(self, extra_environment: Mapping[str, str]) -> None:
        arguments: list[str | Path] = [sys.executable, "-m", "cdc", self.command, "-c", self._config, *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                CURRENT.command(arguments, death_signal=signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment(), **extra_environment},
                start_new_session=True,
            )

    def client(self) -> httpx.Client:
        """Asks it, once it listens; to be closed."""
        self.wait_said('"url"')
        line = next(line for line in self.said().splitlines() if '"url"' in line)
        return httpx.Client(base_url=orjson.loads(line)["url"], timeout=30)

    def children(self) -> list[psutil.Process]:
        """The processes that answer."""
        return [
            each
            for each in psutil.Process(self.pid).children(recursive=True)
            if any("spawn_main" in argument for argument in arguments(each))
        ]

    def wait_children(self, count: int) -> list[psutil.Process]:
        """They, once there are that many."""

        def there() -> list[psutil.Process] | None:
            try:
                found = self.children()
            except psutil.NoSuchProcess:
                return None
            return found if len(found) == count else None

        found = eventually(there, message=lambda: f"{count} processes that answer\n{self.tail()}")
        assert found is not None
        return found
