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

from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError

LONGEST_STOP_S: Final = 70.0
"""Between the first signal and the end. Longer than the bridge waits for its last Kafka commit, which is a minute; what
is not done by then is done again at the next start, as after a kill."""
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0
_TELL_EVERY_S: Final = 60.0
"""An outage may take hours, and each attempt would say the same."""

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
        log.error(
            "not stopped in time, and ended as it is",
            limit_s=LONGEST_STOP_S,
            threads=waiting,
            remedy="start it again: it goes on where it was; a server that hangs held it up",
        )
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


class OutageLog:
    """Tells of attempts that failed: the first, one a minute while it lasts, and that it is over.

    What has another cause is told at once: it wants another remedy.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        self._told: dict[tuple[type[CdcError], str], float] = {}
        self._attempts = 0

    def failed(self, error: CdcError, pause_s: float) -> None:
        """An attempt ended with an error; the next one begins after a pause."""
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
        """An attempt does its work."""
        if self._since is not None:
            log.info("works again", after_s=round(self._clock() - self._since, 1), attempts=self._attempts)
        self._since, self._attempts = None, 0
        self._told.clear()


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
    outage = OutageLog()

    def works() -> None:
        nonlocal pause_s
        pause_s = _FIRST_PAUSE_S
        outage.works()

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
            outage.failed(error, wait_s)
            stop.wait(wait_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
