"""Looks at the slot on a thread and a connection of its own: when nothing is committed, and while the bridge is down.

Kafka may be away for hours while the server keeps WAL for us; just then the numbers and warnings are wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

import psycopg
import structlog

from cdc.config import Config
from cdc.daemon.worker import Worker
from cdc.errors import CdcError
from cdc.source.connect import LOOK_S, connect
from cdc.source.giving_up import give_up
from cdc.source.retention import Danger, Retention, dangers, inspect_retention

INTERVAL_S: Final = 10.0

log = structlog.get_logger("cdc.bridge")


class SlotWatch:
    """Watches while the ``with`` block lasts, and warns once of each danger that arises.

    Args:
        config: the whole configuration.
        on_look: told of each look, in the watching thread.
        stop: set when the thread fails; leaving the ``with`` block then raises why.
    """

    def __init__(self, config: Config, on_look: Callable[[Retention], None], stop: threading.Event) -> None:
        self._config = config
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
        while not self._ended.is_set():
            try:
                self._look()
            except CdcError as error:
                log.debug("cannot look at the slot", error=error.message)
                self._disconnect()
            self._ended.wait(INTERVAL_S)
        self._disconnect()

    def _look(self) -> None:
        source = self._config.source
        if self._connection is None or self._connection.closed:
            application = f"cdc {self._config.name} watch"
            self._connection = connect(source.connection(), application_name=application, lock_timeout_s=LOOK_S)
        retention = inspect_retention(self._connection, source.slot)
        self._on_look(retention)
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
