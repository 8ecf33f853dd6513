"""Watches the slot in a thread and on a connection of its own, also when nothing is committed or the bridge is down.

Kafka may be unreachable for hours while the server keeps WAL for us. Just then numbers and warnings are needed most. So
every process that may ask the source exports the numbers, and not the bridge alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import psycopg
import structlog

from cdc.base.config import Config
from cdc.base.daemon.worker import Worker
from cdc.base.errors import CdcError
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.giving_up import give_up
from cdc.bridge.source.retention import Danger, Retention, dangers, inspect_retention
from cdc.bridge.source.slot_meter import SlotMeter

INTERVAL_S: Final = 10.0
_REFUSED_S: Final = 300.0
"""The pause after a refusal, because the source logs each attempt."""
_UNKNOWN_AFTER_S: Final = 60.0
"""How old the exported numbers may get while the source does not answer."""

log = structlog.get_logger("cdc.bridge")


class SlotWatch:
    """Watches inside the ``with`` block, and warns once of each danger that arises.

    Args:
        config: the whole configuration.
        on_look: is told of each look, in the watching thread; None when the source has not answered for a while.
        stop: set when the thread fails; leaving the ``with`` block then raises the reason.
        warns: whether dangers are logged, as the bridge does.
    """

    def __init__(
        self,
        config: Config,
        on_look: Callable[[Retention | None], None],
        stop: threading.Event,
        *,
        warns: bool = True,
    ) -> None:
        self._config = config
        self._warns = warns
        self._on_look = on_look
        self._ended = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._known: dict[str, Danger] = {}
        self._worker = Worker(self._run, name="slot watch", on_failure=stop.set)

    def __enter__(self) -> SlotWatch:
        self._worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        give_up(self._worker.ended_within, lambda: [] if self._connection is None else [self._connection])
        self._worker.end(error, 0)

    def _run(self) -> None:
        answered_at = time.monotonic()
        while not self._ended.is_set():
            pause_s = INTERVAL_S
            try:
                self._look()
                answered_at = time.monotonic()
            except CdcError as error:
                log.debug("cannot look at the slot", error=error.message)
                self._disconnect()
                pause_s = INTERVAL_S if error.retryable else _REFUSED_S
                if time.monotonic() - answered_at > _UNKNOWN_AFTER_S or not error.retryable:
                    self._on_look(None)
            self._ended.wait(pause_s)
        self._disconnect()

    def _look(self) -> None:
        source = self._config.source
        if self._connection is None or self._connection.closed:
            application = f"cdc {self._config.name} watch"
            self._connection = connect(source.connection(), application_name=application, lock_timeout_s=LOOK_S)
        retention = inspect_retention(self._connection, source.slot)
        self._on_look(retention)
        if not self._warns:
            return
        now = {each.key: each for each in dangers(retention)}
        for key, danger in now.items():
            if key not in self._known:
                log.warning(danger.text, remedy=danger.remedy)
        for key, danger in self._known.items():
            if key not in now:
                log.info("no longer in danger", was=danger.text)
        self._known = now

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def slot_watch(config: Config, meter: SlotMeter, stop: threading.Event) -> SlotWatch:
    """Returns the watch for a process other than the bridge: it exports numbers, and leaves warnings to the bridge."""
    return SlotWatch(config, lambda seen: meter.look(None if seen is None else seen.slot), stop, warns=False)
