"""The one place in the tests that sleeps: asking again until something is true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

_INTERVAL_S = 0.02
_LONGEST_INTERVAL_S = 0.1
_SHARE = 0.1
"""Of the time that it took so far: many questions ask a server, which has the answer to work for."""
PATIENCE: Final = 8
"""Times as long as on a machine that has nothing else to do. A limit says *never*: only a test that fails waits for it,
and one that a busy neighbour can make fail says nothing."""


def eventually(
    condition: Callable[[], Result | None],
    timeout_s: float = 30,
    message: str | Callable[[], str] = "",
    *,
    is_momentary: bool = False,
) -> Result:
    """The first truthy result of ``condition``, asked every 20 ms, and every 100 ms when it takes longer.

    Args:
        condition: any callable; what it raises is not caught.
        timeout_s: how long to ask on a quiet machine; a busy one has ``PATIENCE`` times as long.
        message: what was expected, or a callable that says it when the time is over.
        is_momentary: it may be true for a moment only, and is asked every 20 ms however long it takes.

    Raises:
        AssertionError: the time is over.
    """
    started = time.monotonic()
    deadline = started + PATIENCE * timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            expected = (message() if callable(message) else message) or condition
            raise AssertionError(f"not within {PATIENCE * timeout_s:g} s: {expected}; last answer: {result!r}")
        longest = _INTERVAL_S if is_momentary else _LONGEST_INTERVAL_S
        time.sleep(min(longest, max(_INTERVAL_S, _SHARE * (time.monotonic() - started))))


def within(condition: Callable[[], object], timeout_s: float) -> bool:
    """Whether it becomes true in so many seconds, asked every 20 ms: for what need not happen at all."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_INTERVAL_S)
    return True
