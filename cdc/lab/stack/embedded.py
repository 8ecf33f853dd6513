"""The base of all embedded servers: a process with a private directory, on a free loopback port."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import psutil

from cdc.base.errors import StackError
from cdc.lab.stack.account import Account
from cdc.lab.stack.running import ServerRecord, kill_tree

HOST = "127.0.0.1"
# Below the range of outgoing connections on every system (Linux 32768+, macOS 49152+). In that range, a client that
# retries while its server restarts may get the server's port as its own source port, and connect to itself.
PORTS = (20000, 32000)
_PORT_ATTEMPTS = 5
_START_TIMEOUT_S = 120.0  # a cold JVM on a busy machine took 13 s; crash recovery may come on top
_STOP_TIMEOUT_S = 15.0
_POLL_INTERVAL_S = 0.03
_TAKEN = ("Address already in use", "Address in use", "seems to be in use by another process")
"""How a server reports a port that is not free: with glibc, with musl, and on Quarkus."""


class PortTaken(Exception):
    """Another process took the port after ``free_port`` and before the server bound it."""


def free_port() -> int:
    """Returns a loopback port that nobody is listening on now, or keeps for a server that is down."""
    for _ in range(200):
        port = random.randrange(*PORTS)
        # Without SO_REUSEADDR: so it is refused a port that ``_kept`` has bound
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise StackError(f"no free port between {PORTS[0]} and {PORTS[1]}", remedy="stop some program that listens there")


def _kept(port: int) -> socket.socket:
    """Keeps a port from ``free_port`` in every process, while its server is down as well.

    With SO_REUSEADDR, which servers set too, a socket that does not listen keeps nobody else from it.
    """
    kept = socket.socket()
    try:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, port))
    except OSError as error:
        kept.close()
        raise PortTaken from error
    return kept


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll ``condition``; returns whether it became true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True


class EmbeddedServer(ABC):
    """A server that this process started and owns.

    Its data live in a temporary directory until ``close``; ``stop``, ``kill`` and ``restart`` keep directory and port.
    Unless it is ``detached``, the server ends when this process ends in any way, or at the latest when the next stack
    is started.

    Attributes:
        directory: its data and its log.
        port: the port that it was given by its first start.
        account: the one that it runs as.
    """

    name: str
    _stop_signals: ClassVar[tuple[signal.Signals, ...]]
    _death_signal: ClassVar[signal.Signals]

    def __init__(self, record: ServerRecord, account: Account, *, detached: bool) -> None:
        self.directory = record.directory
        self.port = 0
        self._record = record
        self.account = account
        self._detached = detached
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._kept_port = contextlib.ExitStack()
        if not detached:
            atexit.register(self.close)

    @property
    def pid(self) -> int:
        """The process id of the server; 0 if it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    @property
    def log_path(self) -> Path:
        """The file with the server's output, from all its starts."""
        return self.directory / "server.log"

    @property
    @abstractmethod
    def url(self) -> str:
        """The address that a client needs to connect."""

    @abstractmethod
    def command(self) -> list[str | Path]:
        """Returns the program and its arguments, for the current port."""

    @abstractmethod
    def _environment(self) -> Mapping[str, str]: ...

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server serves clients now."""

    def start(self) -> Self:
        """Start on a free port, and return when the server serves clients.

        Raises:
            StackError: the server ended at once or did not answer; the message has the end of its log.
        """
        for _ in range(_PORT_ATTEMPTS):
            self.port = free_port()
            try:
                if not self._detached:  # whose port nobody keeps when this process ends
                    self._kept_port.enter_context(_kept(self.port))
                self._launch()
            except PortTaken:
                self._kept_port.close()
                continue
            return self
        raise StackError(f"{self.name} found its port in use {_PORT_ATTEMPTS} times", remedy="try again")

    def restart(self) -> None:
        """Stop the server if it is running, and start it with the same directory and port; returns when it serves."""
        self.stop()
        try:
            self._launch()
        except PortTaken as error:
            text = f"another process took port {self.port} of {self.name} during the restart"
            raise StackError(text, remedy="try again") from error

    def stop(self) -> None:
        """Stop the server, with a harder signal after 15 seconds; does nothing if it is not running."""
        process = self._process
        if process is None:
            return
        for wanted in self._stop_signals:
            if process.poll() is None:
                process.send_signal(wanted)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server and its children as abruptly as a machine failure; returns when they are gone."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                kill_tree(psutil.Process(process.pid))
        process.wait(_STOP_TIMEOUT_S)

    def close(self) -> None:
        """Stop the server and remove its directory; does nothing the second time, or in a forked child."""
        if os.getpid() != self._owner:  # a forked child inherits the atexit hook, but not the server
            return
        atexit.unregister(self.close)
        self.stop()
        self._kept_port.close()
        self._record.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self) -> None:
        command = self.account.command(self.command(), death_signal=0 if self._detached else self._death_signal)
        said_before = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal must reach only this process, not the server
            )
        self._record.update(pid=process.pid, url=self.url, stop_signal=self._stop_signals[0])
        answered = wait_until(lambda: process.poll() is not None or self._answers(), _START_TIMEOUT_S)
        if answered and process.poll() is None:
            return
        self.kill()
        said = self.log_path.read_text(encoding="utf-8", errors="replace")[said_before:]
        if any(words in said for words in _TAKEN):
            raise PortTaken
        verb = "ended at once" if answered else f"did not answer within {_START_TIMEOUT_S:.0f} s"
        last_lines = "\n".join(said.splitlines()[-12:])
        raise StackError(f"{self.name} {verb}; the end of its log:\n{last_lines}", remedy="fix what the log says")
