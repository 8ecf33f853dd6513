"""Error → try again, or stop; signals; exit codes. The one place that decides it, by the error's class alone."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from types import FrameType

import structlog

from cdc.errors import CdcError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0

log = structlog.get_logger("cdc")


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set; a second signal ends the process at once."""
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        log.info("stopping: publishing and confirming what was read; a second signal ends at once")
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


def hangups() -> threading.Event:
    """An event that SIGHUP sets."""
    event = threading.Event()
    signal.signal(signal.SIGHUP, lambda _number, _frame: event.set())
    return event


def supervise(
    session: Callable[[Callable[[], None]], None], stop: threading.Event, on_retry: Callable[[CdcError], None]
) -> None:
    """Run ``session`` again and again while what ends it is the world's fault.

    Args:
        session: one attempt, from connecting on; it calls its argument when it works, which resets the pause.
        stop: ends the waiting, too.
        on_retry: told before each pause.

    Raises:
        CdcError: not retryable: the operator must act, or another process took over.
    """
    pause_s = _FIRST_PAUSE_S

    def works() -> None:
        nonlocal pause_s
        pause_s = _FIRST_PAUSE_S

    while not stop.is_set():
        try:
            session(works)
        except CdcError as error:
            if not error.retryable:
                raise
            if stop.is_set():
                return
            on_retry(error)
            wait_s = pause_s * random.uniform(0.5, 1.0)  # two bridges that lost one broker do not come back in step
            log.warning("trying again", error=error.message, remedy=error.remedy or None, pause_s=round(wait_s, 1))
            stop.wait(wait_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
