"""For whom this process waits: said by the log, by ``/ready`` and by metrics where it would otherwise be silent.

A server that stands still takes what it is sent and answers nothing. Client libraries find that normal for a minute or
more, so whoever asks a server says so here, and from some seconds on it is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

LONG_S: Final = 5.0
"""A wait that is worth a word. What is asked for is answered within a second, by a busy server within two."""

Whom: TypeAlias = Literal["kafka", "source", "replica"]
"""``replica`` is whatever is filled from topics: a database or the store of a view."""
WHOM: Final[tuple[Whom, ...]] = get_args(Whom)

KAFKA_REMEDY: Final = "look at the brokers: does each of them answer, and has its disk room?"


class Wait(NamedTuple):
    """One wait.

    Attributes:
        what: completes "waits for".
        began: by the clock.
    """

    whom: Whom
    what: str
    remedy: str
    began: float


class Waits:
    """All waits of a process. For any thread; of a thread that has begun several, the newest is the one that it is in.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._number = 0
        self._open: dict[int, tuple[int, Wait]] = {}

    def begin(self, whom: Whom, what: str, remedy: str) -> int:
        """A wait begins; its number is for ``end``."""
        with self._guard:
            self._number += 1
            self._open[self._number] = threading.get_ident(), Wait(whom, what, remedy, self._clock())
            return self._number

    def end(self, number: int) -> None:
        """It is over."""
        with self._guard:
            self._open.pop(number, None)

    @contextmanager
    def on(self, whom: Whom, what: str, remedy: str) -> Generator[None, None, None]:
        """The block waits."""
        number = self.begin(whom, what, remedy)
        try:
            yield
        finally:
            self.end(number)

    def long(self) -> list[tuple[Wait, float]]:
        """Those that are worth a word, the longest first, with their seconds."""
        now = self._clock()
        with self._guard:
            newest = dict(self._open.values())  # by thread
        found = [(each, now - each.began) for each in newest.values()]
        return sorted((each for each in found if each[1] >= LONG_S), key=lambda each: -each[1])

    def longest_s(self, whom: Whom) -> float:
        """Of the longest wait for one of them that is worth a word; 0 without one."""
        return max((seconds for wait, seconds in self.long() if wait.whom == whom), default=0.0)

    def document(self) -> list[dict[str, object]]:
        """Plain values for ``/ready``: of each server the longest, for several threads may wait for one."""
        longest = {wait.whom: (wait, seconds) for wait, seconds in reversed(self.long())}
        return [
            {"for": wait.what, "whom": wait.whom, "seconds": round(seconds, 1), "remedy": wait.remedy}
            for wait, seconds in longest.values()
        ]


WAITS: Final = Waits()
"""Of this process."""
