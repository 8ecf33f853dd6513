"""Decides what follows an error, by its class alone: try again, or stop with an exit code. Also handles signals."""

from __future__ import annotations

import gc
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

from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError

LONGEST_STOP_S: Final = 70.0
"""The longest time from the first signal to the end of the process. The bridge waits up to a minute for its last Kafka
commit, so it is longer. What is not done by then is repeated at the next start, as after a kill."""
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0
_TELL_EVERY_S: Final = 60.0
"""How often an outage is logged: it may last hours, and each attempt would log the same."""

log = structlog.get_logger("cdc")


def stop_on_signals() -> threading.Event:
    """Returns an event that SIGTERM and SIGINT set. A second signal, or a stop that takes too long, ends the process.

    Python runs signal handlers in the main thread, between two bytecodes. It never runs them while that thread waits
    inside a client library for a server that hangs. So another thread receives the signals, through a pipe.
    """
    stop = threading.Event()
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    for number in _STOPPING:
        signal.signal(number, lambda _number, _frame: None)  # replaces the default, which would end the process
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)  # a full pipe holds enough signals to stop
    Worker(partial(_stop, stop, told), name="signals", on_failure=stop.set).start()
    return stop


def _stop(stop: threading.Event, told: int) -> None:
    number = _next_signal(told, None)
    assert number is not None
    log.info("stopping: publishing and confirming what was read; a second signal ends at once")
    stop.set()
    if (second := _next_signal(told, LONGEST_STOP_S)) is None:
        waiting = sorted(each.name for each in threading.enumerate())
        log.error(
            "not stopped in time: ending the process now",
            limit_s=LONGEST_STOP_S,
            threads=waiting,
            remedy="start it again: it goes on where it was; probably a server that hangs held it up",
        )
    os._exit(128 + (second or number))  # not an exception: the main thread may hang in a client library


def _next_signal(told: int, timeout_s: float | None) -> int | None:
    """Returns the next signal that asks us to stop; None after the timeout."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(told, select.POLLIN)
    while poll.poll(None if until is None else max(until - time.monotonic(), 0) * 1000):
        if (number := os.read(told, 1)[0]) in _STOPPING:
            return number
    return None


def hangups() -> threading.Event:
    """Returns an event that SIGHUP sets."""
    event = threading.Event()
    signal.signal(signal.SIGHUP, lambda _number, _frame: event.set())
    return event


class OutageLog:
    """Logs failed attempts: the first one, one a minute while the outage lasts, and the end of the outage.

    A failure with another cause is logged at once, because it needs another remedy.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._told: dict[tuple[type[CdcError], str], float] = {}
        self._attempts = 0

    def failed(self, error: CdcError, pause_s: float) -> None:
        """Report an attempt that ended with an error; the next one begins after ``pause_s``."""
        now, cause = self._clock(), (type(error), error.remedy)
        self._since = now if self._since is None else self._since
        self._attempts += 1
        if cause in self._told and now - self._told[cause] < _TELL_EVERY_S:
            log.debug("trying again", error=error.message, pause_s=round(pause_s, 1))
            return
        self._told[cause] = now
        lasts = {} if self._attempts == 1 else {"attempts": self._attempts, "for_s": round(now - self._since)}
        log.warning("trying again", error=error.message, remedy=error.remedy, pause_s=round(pause_s, 1), **lasts)

    def works(self) -> None:
        """Report that an attempt works."""
        if self._since is not None:
            log.info("works again", after_s=round(self._clock() - self._since, 1), attempts=self._attempts)
        self._since, self._attempts = None, 0
        self._told.clear()


def supervise(
    session: Callable[[Callable[[], None]], None], stop: threading.Event, on_retry: Callable[[CdcError], None]
) -> None:
    """Run ``session`` again and again, as long as it ends with retryable errors.

    Args:
        session: one attempt, from connecting on; it calls its argument once it works, which resets the pause.
        stop: ends the attempts, and a pause between two.
        on_retry: called with the error before each pause.

    Raises:
        CdcError: an error that is not retryable: the operator must act, or another process took over.
    """
    pause_s = _FIRST_PAUSE_S
    outage = OutageLog()

    def works() -> None:
        nonlocal pause_s
        pause_s = _FIRST_PAUSE_S
        outage.works()

    while not stop.is_set():
        try:
            session(works)
            continue
        except CdcError as error:
            if not error.retryable:
                raise
            if stop.is_set():
                return
            # Or who keeps the error keeps the frames that it passed, and so the whole session
            error.__traceback__ = error.__cause__ = error.__context__ = None
            on_retry(error)
            wait_s = pause_s * random.uniform(0.5, 1.0)  # so that two bridges that lost a broker do not retry in step
            outage.failed(error, wait_s)
        # An error of psycopg forms a cycle with its frames, which keep the session with its Kafka clients, each with
        # threads of its own. Without this, an hour without the source would end with a thousand threads
        gc.collect()
        stop.wait(wait_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
