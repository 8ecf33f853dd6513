"""One timer for a connection, however often it waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc.base.web.patience import Patience


class Loop:
    """Time that a test moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object], list[bool]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], object]) -> Any:
        cancelled: list[bool] = []
        self.timers.append((self.now + seconds, call, cancelled))
        return type("Handle", (), {"cancel": lambda _: cancelled.append(True)})()

    def go_to(self, now: float) -> None:
        while due := [each for each in self.timers if each[0] <= now]:
            self.timers.remove(due[0])
            self.now = due[0][0]
            if not due[0][2]:
                due[0][1]()
        self.now = now


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def patience(loop: Loop) -> Patience:
    return Patience(loop)  # type: ignore[arg-type]  # a stand-in


def test_it_ends_when_the_last_wait_does(loop: Loop, patience: Patience) -> None:
    said: list[str] = []
    patience.wait(10, lambda: said.append("first"))
    loop.go_to(6)
    patience.wait(10, lambda: said.append("second"))
    loop.go_to(15.9)
    assert said == []
    loop.go_to(16.1)
    assert said == ["second"]
    loop.go_to(99)
    assert said == ["second"]


def test_many_waits_have_one_timer(loop: Loop, patience: Patience) -> None:
    for _ in range(100):
        patience.wait(10, lambda: None)
        patience.rest()
    assert len(loop.timers) == 1


def test_who_rests_or_ends_waits_for_nothing(loop: Loop, patience: Patience) -> None:
    said: list[str] = []
    patience.wait(10, lambda: said.append("never"))
    patience.rest()
    loop.go_to(20)
    patience.wait(10, lambda: said.append("never"))
    patience.end()
    loop.go_to(40)
    assert said == []
