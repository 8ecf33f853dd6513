"""A server that is silent on the stream is noticed, whatever the bridge does meanwhile; one that answers is not."""

from __future__ import annotations

from typing import cast

import pytest

from cdc.base.lsn import LSN
from cdc.base.waits import LONG_S, Waits
from cdc.bridge.capture import stream as module
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.stream import FEEDBACK_INTERVAL_S, WalStream

STEP_S = 0.25


class Clock:
    """A twin of ``time`` that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


class Session:
    """A twin of ``CopyBoth``: ``socket`` are frames that nobody has read yet."""

    backend_pid = 7

    def __init__(self) -> None:
        self.socket: list[bytes] = []
        self.answers = True

    def send(self, frame: bytes) -> None:
        if self.answers and frame[-1]:
            self.socket.append(b"k")

    def read(self, max_frames: int) -> list[bytes]:
        taken, self.socket = self.socket[:max_frames], self.socket[max_frames:]
        return taken

    def wait(self, timeout_s: float) -> bool:
        return bool(self.socket)


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.session = Clock(), Session()
        self.waits = Waits(self.clock.monotonic)
        monkeypatch.setattr(module, "time", self.clock)
        monkeypatch.setattr(module, "WAITS", self.waits)
        self.stream = WalStream(cast(CopyBoth, self.session), LSN(1))

    def told(self) -> list[str]:
        return [wait.what for wait, _ in self.waits.long()]

    def passes(self, seconds: float, *, reads: bool = True) -> None:
        """Time, with a loop that comes by four times a second."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            if reads:
                self.stream.read(10)
            self.stream.feedback_if_due()
            self.clock.now += STEP_S


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_server_at_rest_is_no_trouble(scene: Scene) -> None:
    scene.passes(10 * LONG_S)
    assert scene.told() == []


def test_a_server_that_stands_still_is_told_of_soon(scene: Scene) -> None:
    scene.passes(3)
    scene.session.answers = False
    scene.passes(LONG_S + FEEDBACK_INTERVAL_S + 3 * STEP_S)
    assert scene.told() == ["PostgreSQL to answer on the replication stream (its process 7)"]
    scene.session.socket.append(b"k")
    scene.stream.read(10)
    assert scene.told() == []


def test_a_commit_in_kafka_does_not_take_that_back(scene: Scene) -> None:
    """The bridge writes down how far the topics are, also when nothing comes from the source."""
    scene.session.answers = False
    scene.passes(LONG_S + FEEDBACK_INTERVAL_S + 3 * STEP_S)
    assert scene.told()
    scene.stream.confirm(LSN(1))
    assert scene.told()


def test_an_answer_that_nobody_has_read_yet_is_an_answer(scene: Scene) -> None:
    """A locked table, or Kafka, keeps the bridge from reading."""
    scene.passes(3)
    scene.passes(10 * LONG_S, reads=False)
    assert scene.told() == []
    scene.stream.read(10)
    scene.stream.feedback_if_due()
    scene.clock.now += FEEDBACK_INTERVAL_S + STEP_S
    scene.stream.feedback_if_due()
    scene.clock.now += 10 * LONG_S  # in a commit that took so long
    scene.stream.confirm(LSN(1))
    assert scene.told() == []
