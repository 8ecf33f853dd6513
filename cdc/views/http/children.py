"""The processes that answer: started afresh, replaced when they die, ended with their parent."""

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
"""For a process to end; requests under way and those who watch have ten seconds of them."""
_SHORT_LIFE_S: Final = 5.0
_PAUSES_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Before a process is started in the place of one that lived no longer than that."""
_LOOK_S: Final = 0.5

log = structlog.get_logger("cdc.serve")


def answer_as_child(make: MakeServer, listening: socket.socket) -> None:
    """Answer in a process that ``Children`` started, until it is told to stop, or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which says when to stop
    parent = multiprocessing.parent_process()
    assert parent is not None

    async def serve() -> None:
        server = make()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, server.stop)
        loop.add_reader(parent.sentinel, _orphaned, server, loop, parent.sentinel)
        await server.serve([listening])
        os._exit(0)  # all is answered; a thread that waits for a server, or a loop that does not close, holds up nobody

    uvloop.run(serve())


def _orphaned(server: Server, loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
    log.warning(
        "the parent process is gone: stopping", remedy="start cdc serve again; look who killed it (out of memory?)"
    )
    loop.remove_reader(sentinel)
    server.stop()


class _Child(NamedTuple):
    """A process, and how many before it in its place lived shortly."""

    number: int
    process: SpawnProcess
    started_at: float
    short_lives: int


class Children:
    """Keeps a number of processes alive.

    Args:
        target: what each does; it must be found by its name in its module, for the process is started afresh.
        arguments: of the target for the process of that number, from 0.
        count: how many.
        on_signal: called with the number of the signal that ended one of them, before another is started.
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
        """Replace processes that die, until ``stop``; then end all of them. For a thread of its own.

        Args:
            stop: ends it.
            look: called several times a second.
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
            "a process that answers died; starting another",
            exit_code=exit_code,
            signal=signal.Signals(-exit_code).name if exit_code < 0 else None,
            pause_s=pause_s or None,
            remedy="wait: another one starts by itself; if they die again and again, look at memory and the log above",
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
                    "a process did not end in time: it is killed",
                    limit_s=LONGEST_STOP_S,
                    remedy="leave it: it is killed; a client or a disk that hangs held it up",
                )
                each.process.kill()
                each.process.join()
