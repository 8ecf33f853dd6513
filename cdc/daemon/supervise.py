"""Error → try again, or stop; signals; exit codes. The one place that decides it, by the error's class alone."""

from __future__ import annotations

import os
import random
import select
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from cdc.daemon.worker import Worker
from cdc.errors import CdcError

LONGEST_STOP_S: Final = 70.0
"""Between the first signal and the end. Longer than the bridge waits for its last Kafka commit, which is a minute; what
is not done by then is done again at the next start, as after a kill."""
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0

log = structlog.get_logger("cdc")


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set; a second signal ends the process at once, and so does a long wait.

    Python runs handlers in the main thread, between two of its instructions: never, while that thread waits inside of a
    client library for a server that hangs. So a thread of its own is told of signals.
    """
    stop = threading.Event()
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    for number in _STOPPING:
        signal.signal(number, lambda _number, _frame: None)  # or the default would end the process
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    Worker(partial(_stop, stop, told), name="signals", on_failure=stop.set).start()
    return stop


def _stop(stop: threading.Event, told: int) -> None:
    number = _next_signal(told, None)
    assert number is not None
    log.info("stopping: publishing and confirming what was read; a second signal ends at once")
    stop.set()
    if (second := _next_signal(told, LONGEST_STOP_S)) is None:
        waiting = sorted(each.name for each in threading.enumerate())
        log.error("not stopped in time, and ended as it is", limit_s=LONGEST_STOP_S, threads=waiting)
    os._exit(128 + (second or number))


def _next_signal(told: int, timeout_s: float | None) -> int | None:
    """The next one that is to stop us; None when the time is over."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(told, select.POLLIN)
    while poll.poll(None if until is None else max(until - time.monotonic(), 0) * 1000):
        if (number := os.read(told, 1)[0]) in _STOPPING:
            return number
    return None


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
