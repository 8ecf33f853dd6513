"""An answer that costs more than a look, asked for beside it and kept until it is old."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeAlias

from cdc.base.errors import CdcError

Document: TypeAlias = dict[str, Any]

OLD_S: Final = 300.0
_SOON_S: Final = 20.0
"""Between two askings at least, when something changed that it is about."""


class Rarely:
    """One question. For one thread; the asking is done in the executor.

    Args:
        executor: where it is asked.
        old_s: after which an answer is asked for again.
    """

    def __init__(self, executor: Executor, old_s: float = OLD_S) -> None:
        self._executor = executor
        self._old_s = old_s
        self._asked_at: float | None = None
        self._about: object = None
        self._under_way: Future[Document] | None = None
        self._answer: Document | None = None

    def answer(self, ask: Callable[[], Document], about: object = None, *, is_wanted: bool) -> Document | None:
        """The newest answer, with ``at``, or with ``error`` instead of its content; None before the first.

        Args:
            ask: what may be asked now; raises CdcError.
            about: asks sooner than otherwise when it is not what it was.
            is_wanted: whether to ask at all; without, what was answered stays.
        """
        if self._under_way is not None and self._under_way.done():
            self._take(self._under_way)
            self._under_way = None
        now = time.monotonic()
        age_s = float("inf") if self._asked_at is None else now - self._asked_at
        is_due = age_s > self._old_s or (age_s > _SOON_S and about != self._about)
        if is_wanted and is_due and self._under_way is None:
            self._asked_at, self._about = now, about
            self._under_way = self._executor.submit(ask)
        return self._answer

    def _take(self, done: Future[Document]) -> None:
        try:
            self._answer = {**done.result(), "at": time.time()}
        except CdcError as error:
            self._answer = {"at": time.time(), "error": {"text": error.message, "remedy": error.remedy}}
