"""A few threads that ask servers, for a process that does not wait for them when it ends.

Python joins the threads of its own executors before a process may exit. A server that hangs would hold one of them, and
so the process, for as long as it likes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

from cdc.base.daemon.worker import Worker

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_Work: TypeAlias = SimpleQueue[Callable[[], None] | None]
"""None ends a thread, which hands it on to the next."""


class Threads(Executor):
    """Up to so many threads, each started when there is more to do than the others can take.

    Args:
        count: how many.
        name: of each.
    """

    def __init__(self, count: int, name: str) -> None:
        self._unstarted = count
        self._name = name
        self._guard = threading.Lock()
        self._idle = threading.Semaphore(0)
        self._work: _Work = SimpleQueue()
        self._is_over = False
        weakref.finalize(self, self._work.put, None)

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Have it done; its result, or what it raised, is in the future."""
        future: Future[Result] = Future()
        with self._guard:
            if self._is_over:
                raise RuntimeError(f"the threads {self._name} were told to end")
            self._work.put(partial(_do, future, partial(fn, *args, **kwargs)))
            if self._unstarted and not self._idle.acquire(blocking=False):
                self._unstarted -= 1
                Worker(partial(_run, self._work, self._idle), name=self._name).start()
        return future

    def shutdown(self, *_: object, **__: object) -> None:
        """End the threads as soon as they have nothing to do. Whoever wants results waits for the futures."""
        with self._guard:
            self._is_over = True
            self._work.put(None)


def _run(work: _Work, idle: threading.Semaphore) -> None:
    while True:
        if work.empty():
            idle.release()
        task = work.get()
        if task is None:
            work.put(None)
            return
        task()


def _do(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(error)
    else:
        future.set_result(result)
