"""Limits how long a connection may keep us waiting, with one timer each, which is not reset with every request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Patience:
    """A deadline for one thing at a time. ``wait`` and ``rest`` are cheap, because a request calls them several times.

    Args:
        loop: the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0
        self._then: Callable[[], object] | None = None

    def wait(self, seconds: float, then: Callable[[], object]) -> None:
        """Call ``then`` after ``seconds``; this replaces an earlier deadline."""
        self._ends_at, self._then = self._loop.time() + seconds, then
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._look)

    def rest(self) -> None:
        """Cancel the deadline; the timer goes on, and does nothing when it ends."""
        self._then = None

    def end(self) -> None:
        """Cancel deadline and timer for good."""
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
