"""Logs which server the process waits for once that takes long: client libraries say nothing for a minute."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

import structlog

from cdc.base.broker_log import BROKER_LOG
from cdc.base.daemon.worker import Worker
from cdc.base.waits import WAITS, Waits

AGAIN_S: Final = 60.0
_LOOK_S: Final = 0.5

log = structlog.get_logger("cdc")


class WaitLog:
    """Logs each long wait while the ``with`` block lasts: when it becomes long, once a minute, and when it ends.

    Args:
        stop: set when the thread fails; leaving the ``with`` block then raises the failure.
        waits: the waits of the process.
    """

    def __init__(self, stop: threading.Event, waits: Waits = WAITS) -> None:
        self._waits = waits
        self._ended = threading.Event()
        self._told: dict[str, float] = {}
        self._worker = Worker(self._run, name="waits", on_failure=stop.set)

    def __enter__(self) -> WaitLog:
        self._worker.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._worker.end(error)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Log what is to be said at ``now``; the thread does so twice a second."""
        long = self._waits.long()
        for wait, seconds in long:
            if wait.whom == "kafka":
                # Through BROKER_LOG, so that this and the clients' own lines make only one line a minute
                BROKER_LOG.silent(f"waiting for {wait.what}, for {seconds:.0f} s now")
            elif now - self._told.get(wait.what, -AGAIN_S) >= AGAIN_S:
                self._told[wait.what] = now
                log.warning("waiting", waits_for=wait.what, seconds=round(seconds), remedy=wait.remedy)
        for what in self._told.keys() - {wait.what for wait, _ in long}:
            del self._told[what]
            log.info("no longer waiting", waited_for=what)
