"""The one place in the tests that sleeps: asking again until something is true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_INTERVAL_S = 0.02


def eventually(condition: Callable[[], Result], timeout_s: float = 30, message: str | Callable[[], str] = "") -> Result:
    """The first truthy result of ``condition``, asked every 20 ms.

    Args:
        condition: any callable; what it raises is not caught.
        timeout_s: how long to ask.
        message: what was expected, or a callable that says it when the time is over.

    Raises:
        AssertionError: the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            expected = message() if callable(message) else message
            raise AssertionError(f"not within {timeout_s:g} s: {expected or condition}; last answer: {result!r}")
        time.sleep(_INTERVAL_S)
