"""A bridge in this process, for as long as a command needs one: when no other runs."""

from __future__ import annotations

import threading
from types import TracebackType

from cdc.base.config import Config, HttpConfig
from cdc.base.daemon.worker import Worker
from cdc.bridge.run import run_bridge


class OwnBridge:
    """Runs the bridge on a thread, from ``start`` to the end of the ``with`` block, and serves no HTTP.

    Args:
        config: the whole configuration.
        parallel: connections that read tables, instead of the configuration's.
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
        """Begin; what the bridge says goes to the log."""
        self._is_started = True
        self._worker.start()

    def check(self) -> None:
        """Raise what ended the bridge, if something did.

        Raises:
            CdcError: the operator must act, or another bridge took over.
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
