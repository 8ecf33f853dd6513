"""The keys that a sweep finds: of all partitions, each below its own offset, in portions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdc.base.errors import TopicUnavailable
from cdc.bridge.backfill import sweep
from cdc.bridge.backfill.sweep import Sweep
from tests.support.waiting import eventually

ENDS = {("t", 0): 30, ("t", 1): 40}


class Topic:
    """Has stale keys by partition, or fails.

    Attributes:
        asked: what it was asked: partition, the offset below which keys are stale, its end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: dict[int, list[bytes]] = {}
        self.error: Exception | None = None
        self.asked: list[tuple[object, int, int]] = []
        monkeypatch.setattr(sweep, "topic_ends", lambda *_: ENDS)
        monkeypatch.setattr(sweep, "stale_keys", self.stale_keys)

    def stale_keys(
        self, _admin: object, partition: tuple[str, int], below: int, end: int, *, before_poll: Callable[[], None]
    ) -> Iterator[bytes]:
        self.asked.append((partition, below, end))
        for key in self.keys.get(partition[1], []):
            before_poll()
            yield key
        if self.error is not None:
            raise self.error

    def sweep(self, *below: int) -> Sweep:
        admin: Any = object()
        return Sweep(admin, "t", below)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    return Topic(monkeypatch)


def portions(of: Sweep) -> list[list[bytes]]:
    found: list[list[bytes]] = []

    def is_over() -> bool:
        portion = of.take()
        if portion:
            found.append(portion)
        return portion is None

    eventually(is_over)
    return found


def test_each_partition_has_its_own_bound(topic: Topic) -> None:
    topic.keys = {0: [b"a", b"b"], 1: [b"c"]}
    opened = topic.sweep(3, 4)
    assert portions(opened) == [[b"a", b"b"], [b"c"]]
    assert topic.asked == [(("t", 0), 3, 30), (("t", 1), 4, 40)]
    opened.close()


def test_keys_come_in_portions_that_fit_between_two_reads_of_the_stream(topic: Topic) -> None:
    topic.keys = {1: [b"%d" % number for number in range(20_500)]}
    opened = topic.sweep(3, 4)
    found = portions(opened)
    assert [len(each) for each in found] == [1_000] * 20 + [500]
    assert [key for each in found for key in each] == topic.keys[1]
    opened.close()


def test_a_topic_that_cannot_be_read_ends_the_sweep_with_the_reason(topic: Topic) -> None:
    topic.error = TopicUnavailable("no broker answers", remedy="wait")
    opened = topic.sweep(3, 4)
    with pytest.raises(TopicUnavailable, match="no broker answers"):
        portions(opened)
    opened.close()


def test_closing_ends_a_sweep_that_waits_for_room(topic: Topic) -> None:
    topic.keys = {0: [b"%d" % number for number in range(100_000)]}
    opened = topic.sweep(3, 4)
    eventually(opened.take)
    opened.close()
    assert len(topic.asked) == 1


def test_with_partitions_that_were_added_meanwhile_no_key_is_guessed(topic: Topic) -> None:
    opened = topic.sweep(3)
    with pytest.raises(ValueError, match="zip"):
        portions(opened)
    opened.close()
