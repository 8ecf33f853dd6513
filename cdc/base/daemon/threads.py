"""An executor for questions to servers; the process does not wait for its threads at the end.

Python joins the threads of its own executors before the process exits. A server that hangs would hold up such a thread,
and with it the process, for ever.
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
"""The queue of tasks; None ends a thread, which puts it back for the next thread."""


class Threads(Executor):
    """An executor with up to ``count`` threads; each is started when the others are busy.

    Args:
        count: the greatest number of threads.
        name: the name of each thread.
    """

    def __init__(self, count: int, name: str) -> None:
        self._unstarted = count
        self._name = name
        self._guard = threading.Lock()
        self._idle = threading.Semaphore(0)
        self._work: _Work = SimpleQueue()
        self._is_over = False
        weakref.finalize(self, self._work.put, None)  # an executor that nobody refers to any more ends its threads

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Run ``fn`` in a thread; the future gets its result, or the exception that it raised."""
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
        """End the threads once the queue is empty; does not wait. Callers that want results wait for their futures."""
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
