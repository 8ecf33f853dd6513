"""How long a connection may keep us waiting: one timer each, which is looked at when it ends and not set anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Patience:
    """Waits for one thing at a time. To wait and to rest cost nothing: a request does both several times.

    Args:
        loop: tells the time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0
        self._then: Callable[[], object] | None = None

    def wait(self, seconds: float, then: Callable[[], object]) -> None:
        """Call this when the time is up, and nothing that was said before."""
        self._ends_at, self._then = self._loop.time() + seconds, then
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._look)

    def rest(self) -> None:
        """Wait for nothing."""
        self._then = None

    def end(self) -> None:
        """Never wait again."""
        self._then = None
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._then is None:
            return
        left_s = self._ends_at - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            then, self._then = self._then, None
            then()
