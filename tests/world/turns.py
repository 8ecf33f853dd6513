"""What the models of the servers need from whoever runs the programs: turns, waits and the time."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from typing import Protocol


class Turns(Protocol):
    """The scheduler, as a model sees it.

    Attributes:
        rng: where all chance comes from.
    """

    rng: random.Random

    @property
    def now(self) -> float:
        """Virtual time in seconds since 1970; it never goes back."""

    @property
    def process(self) -> Hashable:
        """The program that makes the present call. Its sessions end with it."""

    def turn(self) -> None:
        """Let others go on. A model calls it where a request leaves, and where its answer arrives.

        Raises:
            Killed: the program was killed; the call has no effect any more.
        """

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let others go on until ``is_done()``, or until the time is over; returns whether it is done."""


class Killed(BaseException):
    """Ends every call of a program that was killed. No ``except Exception`` catches it."""


class Alone:
    """Turns when there is one program and no scheduler: nobody else goes on, and waiting only takes time.

    Args:
        seed: for all chance.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.now = 1_700_000_000.0
        self.process: Hashable = "alone"

    def turn(self) -> None:
        """Nobody else is there."""
        self.now += 0.000_1

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Pass the time, unless it is done already.

        Raises:
            AssertionError: it would wait for ever.
        """
        if is_done():
            return True
        assert timeout_s is not None, "it would wait for ever: nobody else is here"
        self.now += timeout_s
        return is_done()
