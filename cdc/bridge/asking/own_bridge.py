"""Runs a bridge in this process for as long as a command needs one, if no other bridge is running."""

from __future__ import annotations

import threading
from types import TracebackType

from cdc.base.config import Config, HttpConfig
from cdc.base.daemon.worker import Worker
from cdc.bridge.run import run_bridge


class OwnBridge:
    """Runs the bridge in a thread, from ``start`` to the end of the ``with`` block, without serving HTTP.

    Args:
        config: the whole configuration.
        parallel: how many connections read tables; None for what the configuration says.
    """

    def __init__(self, config: Config, parallel: int | None) -> None:
        snapshot = config.snapshot if parallel is None else config.snapshot.model_copy(update={"parallel": parallel})
        self._config = config.model_copy(update={"http": HttpConfig(), "snapshot": snapshot})
        self._stop = threading.Event()
        self._worker = Worker(self._run, name="bridge", daemon=False)
        self._is_started = False

    @property
    def is_started(self) -> bool:
        """Whether ``start`` was called."""
        return self._is_started

    def start(self) -> None:
        """Start the bridge, which reports to the log."""
        self._is_started = True
        self._worker.start()

    def check(self) -> None:
        """Raise the error that ended the bridge, if it has ended.

        Raises:
            CdcError: an operator has to act, or another bridge took over.
        """
        self._worker.check()

    def __enter__(self) -> OwnBridge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._worker.join()

    def _run(self) -> None:
        run_bridge(self._config, self._stop, threading.Event(), lambda: self._config)
