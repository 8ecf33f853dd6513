"""A thread that cannot end unnoticed: what it raises reaches the thread that owns it.

A thread handles a ``CdcError`` by itself, or passes it on with its work. Any other exception is a bug in cdc, and
Python would only print it: the process would go on without a part that all others rely on. So no other module starts
threads, except for executors, whose futures raise what the work raised.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import structlog

log = structlog.get_logger("cdc")


class Worker:
    """A thread, and the exception that ended it.

    Args:
        work: runs in the thread.
        name: the thread's name.
        on_failure: called in the thread if ``work`` raises, for an owner that does not call ``check`` regularly; for
            example the ``set`` of the event that stops the process.
        daemon: whether the process may end before the thread.
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
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended; ``check`` raises what ended it."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def ended_within(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for the thread to end; returns whether it has."""
        self.join(timeout_s)
        return not self.is_alive

    def check(self) -> None:
        """Raise the exception that ended the thread, once. Raises nothing if the thread runs, or ended normally."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def end(self, error: BaseException | None, timeout_s: float | None = None) -> None:
        """Join the thread at the end of a ``with`` block, and raise its failure unless an error ends the block already.

        Args:
            error: the error that ``__exit__`` was given.
            timeout_s: how long to wait for the thread at most.
        """
        self.join(timeout_s)
        if error is None:
            self.check()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - passed to the owner, who raises it in ``check``
            self._failure = error
            log.debug("a thread ended with an error", thread=self.name, error=repr(error))
            self._on_failure()


@contextlib.contextmanager
def beside(
    work: Callable[[threading.Event], None], *, name: str, on_failure: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Runs ``work`` in a thread as long as the block lasts, and raises at its end what ended the thread.

    Args:
        work: returns soon after the event is set that it is given.
        name, on_failure: as for ``Worker``.
    """
    over = threading.Event()
    worker = Worker(lambda: work(over), name=name, on_failure=on_failure)
    worker.start()
    try:
        yield
    except BaseException as error:
        over.set()
        worker.end(error)
        raise
    over.set()
    worker.end(None)
