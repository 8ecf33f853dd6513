"""The serving processes: spawned, replaced when they die, ended with their parent."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Final, NamedTuple

import structlog
import uvloop

from cdc.views.http.http import Server
from cdc.views.http.listening import MakeServer

LONGEST_STOP_S: Final = 15.0
"""How long a process may take to end; requests under way and watches have ten of these seconds."""
_SHORT_LIFE_S: Final = 5.0
_PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Pauses before the next start, by how many processes in a row lived for less than ``_SHORT_LIFE_S``."""
_LOOK_S: Final = 0.5

log = structlog.get_logger("cdc.serve")


def answer_as_child(make: MakeServer, listening: socket.socket) -> None:
    """Serves in a process that ``Children`` started, until it is told to stop or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which says when to stop
    parent = multiprocessing.parent_process()
    assert parent is not None

    async def serve() -> None:
        server = make()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, server.stop)
        loop.add_reader(parent.sentinel, _orphaned, server, loop, parent.sentinel)
        await server.serve([listening])
        os._exit(0)  # everything is answered: do not wait for threads that wait for a server, or for the loop to close

    uvloop.run(serve())


def _orphaned(server: Server, loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
    log.warning(
        "the parent process is gone: stopping", remedy="start cdc serve again; find out what killed it (out of memory?)"
    )
    loop.remove_reader(sentinel)
    server.stop()


class _Child(NamedTuple):
    """A process, and how many processes in a row before it ended soon after their start."""

    number: int
    process: SpawnProcess
    started_at: float
    short_lives: int


class Children:
    """Keeps a number of processes alive.

    Args:
        target: the function that each process runs. It must be importable by name, because processes are spawned.
        arguments: makes the arguments for a process from its number, which counts from 0.
        count: how many processes.
        on_signal: called with the number of the signal that ended a process, before its successor starts.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        arguments: Callable[[int], tuple[object, ...]],
        count: int,
        on_signal: Callable[[int], None],
    ) -> None:
        self._context: SpawnContext = multiprocessing.get_context("spawn")
        self._target = target
        self._arguments = arguments
        self._on_signal = on_signal
        self._living: list[_Child] = [self._start(number, 0) for number in range(count)]

    def run(self, stop: threading.Event, look: Callable[[], None]) -> None:
        """Replaces processes that die, until ``stop``; then ends all of them. Runs in a thread of its own.

        Args:
            stop: ends the loop.
            look: called about twice a second.
        """
        try:
            while not stop.is_set():
                look()
                connection.wait([each.process.sentinel for each in self._living], timeout=_LOOK_S)
                for place, each in enumerate(self._living):
                    if not each.process.is_alive():
                        self._living[place] = self._replace(each, stop)
        finally:
            self._end()

    def _replace(self, dead: _Child, stop: threading.Event) -> _Child:
        lived_s = time.monotonic() - dead.started_at
        short = dead.short_lives + 1 if lived_s < _SHORT_LIFE_S else 0
        pause_s = _PAUSES_S[min(short, len(_PAUSES_S) - 1)]
        exit_code = dead.process.exitcode or 0
        log.error(
            "a serving process died; starting another",
            exit_code=exit_code,
            signal=signal.Signals(-exit_code).name if exit_code < 0 else None,
            pause_s=pause_s or None,
            remedy="wait: another one starts by itself; if processes keep dying, check memory and the log above",
        )
        if exit_code < 0:
            self._on_signal(-exit_code)
        stop.wait(pause_s)
        return dead if stop.is_set() else self._start(dead.number, short)

    def _start(self, number: int, short_lives: int) -> _Child:
        process = self._context.Process(
            target=self._target, args=self._arguments(number), name=f"serve-{number}", daemon=True
        )
        process.start()
        return _Child(number, process, time.monotonic(), short_lives)

    def _end(self) -> None:
        for each in self._living:
            if each.process.is_alive():
                each.process.terminate()
        ends_at = time.monotonic() + LONGEST_STOP_S
        for each in self._living:
            each.process.join(max(ends_at - time.monotonic(), 0))
            if each.process.is_alive():
                log.error(
                    "a process did not end in time: killing it",
                    limit_s=LONGEST_STOP_S,
                    remedy="leave it: it is killed; a client or a disk that hangs held it up",
                )
                each.process.kill()
                each.process.join()
