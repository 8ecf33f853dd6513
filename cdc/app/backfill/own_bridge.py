"""A bridge in this process, for as long as a command needs one: when no other runs."""

from __future__ import annotations

import threading
from types import TracebackType

from cdc.app.run import run_bridge
from cdc.config import Config, HttpConfig


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
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def is_started(self) -> bool:
        """Whether ``start`` was called."""
        return self._thread is not None

    def start(self) -> None:
        """Begin; what the bridge says goes to the log."""
        self._thread = threading.Thread(target=self._run, name="bridge")
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the bridge, if something did.

        Raises:
            CdcError: the operator must act, or another bridge took over.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def __enter__(self) -> OwnBridge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            run_bridge(self._config, self._stop, threading.Event(), lambda: self._config)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that started us
            self._failure = error
