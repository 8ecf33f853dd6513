"""A thread that cannot end unnoticed: what it raises reaches the thread that owns it.

A thread handles what the world causes (``CdcError``) by itself, or hands it on with its work. Anything else is a bug of
ours, and Python would only print it: the process would go on without a part that everybody believes to be there. So no
other module starts threads, but for executors, whose futures raise what the work raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger("cdc")


class Worker:
    """A thread, and what ended it.

    Args:
        work: what it does, from ``start`` on.
        name: of the thread.
        on_failure: called in the thread when ``work`` raised, for an owner who does not ask with ``check`` by himself;
            the ``set`` of the event that stops the process, for instance.
        daemon: whether the process may end before it.
    """

    def __init__(
        self,
        work: Callable[[], None],
        *,
        name: str,
        on_failure: Callable[[], None] = lambda: None,
        daemon: bool = True,
    ) -> None:
        self.name = name
        self._work = work
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=daemon)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it works."""
        return self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until it ended; what ended it is for ``check``."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def ended_within(self, timeout_s: float) -> bool:
        """Wait for its end for so long at most; whether it came."""
        self.join(timeout_s)
        return not self.is_alive

    def check(self) -> None:
        """Raise what ended it, once; nothing while it works, and when it came to its end."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def end(self, error: BaseException | None, timeout_s: float | None = None) -> None:
        """Join it at the end of a ``with`` block; an error that ends the block already is not replaced.

        Args:
            error: what ``__exit__`` was given.
            timeout_s: to wait for it at most.
        """
        self.join(timeout_s)
        if error is None:
            self.check()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the owner
            self._failure = error
            log.debug("a thread ended with an error", thread=self.name, error=repr(error))
            self._on_failure()
