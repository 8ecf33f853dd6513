"""Records which servers this process waits for, so that the log, ``/ready`` and metrics can say so.

A server that hangs accepts requests and does not answer. Client libraries do not notice for a minute or more. So code
that waits for a server registers the wait here, and waits of five seconds and more are reported.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

LONG_S: Final = 5.0
"""A wait this long is reported. Servers normally answer within a second, busy ones within two."""

Whom: TypeAlias = Literal["kafka", "source", "replica"]
"""The servers to wait for. ``replica`` is whatever is filled from topics: a database, or the store of a view."""
WHOM: Final[tuple[Whom, ...]] = get_args(Whom)

KAFKA_REMEDY: Final = "check that every broker answers and that its disk is not full"


class Wait(NamedTuple):
    """One wait.

    Attributes:
        whom: the server.
        what: completes "waits for …".
        remedy: what to check, for people.
        began: when it began, by the clock.
    """

    whom: Whom
    what: str
    remedy: str
    began: float


class Waits:
    """All waits of a process; any thread may use it. A thread with several open waits is in the newest one.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._number = 0
        self._open: dict[int, tuple[int, Wait]] = {}

    def begin(self, whom: Whom, what: str, remedy: str) -> int:
        """Begin a wait; returns its number, for ``end``."""
        with self._guard:
            self._number += 1
            self._open[self._number] = threading.get_ident(), Wait(whom, what, remedy, self._clock())
            return self._number

    def end(self, number: int) -> None:
        """End a wait."""
        with self._guard:
            self._open.pop(number, None)

    @contextmanager
    def on(self, whom: Whom, what: str, remedy: str) -> Generator[None, None, None]:
        """Mark the block as a wait."""
        number = self.begin(whom, what, remedy)
        try:
            yield
        finally:
            self.end(number)

    def long(self) -> list[tuple[Wait, float]]:
        """Returns the waits of ``LONG_S`` or more with their seconds, the longest first."""
        now = self._clock()
        with self._guard:
            newest = dict(self._open.values())  # by thread, so a thread's newest wait replaces its older ones
        found = [(each, now - each.began) for each in newest.values()]
        return sorted((each for each in found if each[1] >= LONG_S), key=lambda each: -each[1])

    def longest_s(self, whom: Whom) -> float:
        """Returns the seconds of the longest wait for a server, if ``long`` reports it; else 0."""
        return max((seconds for wait, seconds in self.long() if wait.whom == whom), default=0.0)

    def document(self) -> list[dict[str, object]]:
        """Returns plain values for ``/ready``: only the longest wait for each server, as threads may wait together."""
        longest = {wait.whom: (wait, seconds) for wait, seconds in reversed(self.long())}
        return [
            {"for": wait.what, "whom": wait.whom, "seconds": round(seconds, 1), "remedy": wait.remedy}
            for wait, seconds in longest.values()
        ]


WAITS: Final = Waits()
"""The waits of this process."""
