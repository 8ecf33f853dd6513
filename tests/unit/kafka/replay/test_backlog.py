"""How far the sink is behind, by its offsets in Kafka: asked in the background, and never waited for."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from cdc.kafka.replay.backlog import SinkBacklog

REFUSED = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))


class Brokers:
    """Answers at once, as long as ``is_quick``.

    Attributes:
        stored: the sink's offsets.
        ends: of its partitions.
    """

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.is_quick = True
        self.refusal: KafkaException | None = None
        self.asked = 0

    def list_consumer_group_offsets(
        self, asked: list[ConsumerGroupTopicPartitions], **_: Any
    ) -> dict[str, Future[Any]]:
        self.asked += 1
        (group,) = asked
        assert group.group_id == "shop.sink"
        places = [TopicPartition(*place, offset) for place, offset in self.stored.items()]
        return {group.group_id: self._answer(ConsumerGroupTopicPartitions(group.group_id, places))}

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        return {each: self._answer(SimpleNamespace(offset=self.ends[each.topic, each.partition])) for each in asked}

    def _answer(self, answer: object) -> Future[Any]:
        future: Future[Any] = Future()
        if self.refusal is not None:
            future.set_exception(self.refusal)
        elif self.is_quick:
            future.set_result(answer)
        return future


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def backlog(brokers: Brokers, clock: Clock) -> SinkBacklog:
    return SinkBacklog(brokers, "shop", clock)  # type: ignore[arg-type]  # what it asks of the client


def asked_for(backlog: SinkBacklog, clock: Clock, seconds: float, topic: str = "t") -> bool:
    """The answer after this time, asked all the while."""
    for _ in range(round(seconds * 20)):
        clock.now += 0.05
        is_long = backlog.is_long(topic)
    return is_long


def test_without_a_sink_nobody_waits(backlog: SinkBacklog, brokers: Brokers, clock: Clock) -> None:
    assert not asked_for(backlog, clock, 60)
    assert brokers.asked < 15


def test_a_topic_that_no_sink_follows_need_not_wait(backlog: SinkBacklog, brokers: Brokers, clock: Clock) -> None:
    brokers.stored, brokers.ends = {("t", 0): 0}, {("t", 0): 100_000}
    assert asked_for(backlog, clock, 1)
    assert not asked_for(backlog, clock, 1, "u")


@pytest.mark.parametrize("refusal", [REFUSED, KafkaException(KafkaError(KafkaError._TRANSPORT))])
def test_without_an_answer_nobody_waits(
    backlog: SinkBacklog, brokers: Brokers, clock: Clock, refusal: KafkaException
) -> None:
    brokers.stored, brokers.ends = {("t", 0): 0}, {("t", 0): 100_000}
    assert asked_for(backlog, clock, 1)
    brokers.refusal = refusal
    assert not asked_for(backlog, clock, 1)
    brokers.refusal = None
    assert asked_for(backlog, clock, 10)


def test_the_first_answer_is_waited_for_and_no_other(backlog: SinkBacklog, brokers: Brokers, clock: Clock) -> None:
    brokers.stored = brokers.ends = {("t", 0): 7}
    brokers.is_quick = False
    assert asked_for(backlog, clock, 2)
    assert brokers.asked == 1
    brokers.is_quick = True
    other = SinkBacklog(brokers, "shop", clock)  # type: ignore[arg-type]  # what it asks of the client
    assert not asked_for(other, clock, 1)
    brokers.is_quick = False
    assert not asked_for(other, clock, 5)


def test_it_is_over_when_the_sink_has_read_it(backlog: SinkBacklog, brokers: Brokers, clock: Clock) -> None:
    brokers.stored, brokers.ends = {("t", 0): 10, ("t", 1): 5}, {("t", 0): 50_010, ("t", 1): 50_005}
    assert asked_for(backlog, clock, 2)
    brokers.stored = dict(brokers.ends)
    assert not asked_for(backlog, clock, 1)


def test_what_was_sent_since_counts(backlog: SinkBacklog, brokers: Brokers, clock: Clock) -> None:
    """A bridge may send a whole table between two questions."""
    brokers.stored = brokers.ends = {("t", 0): 7}
    assert not asked_for(backlog, clock, 1)
    backlog.sends(5_000)
    assert not backlog.is_long("t")
    backlog.sends(1)
    assert backlog.is_long("t")
    assert not asked_for(backlog, clock, 1)  # asked again: the sink has read all of it


def test_a_quick_sink_may_have_more_to_read_than_a_slow_one(
    backlog: SinkBacklog, brokers: Brokers, clock: Clock
) -> None:
    def works(rate: int, left: int) -> bool:
        for _ in range(40):
            brokers.stored = {("t", 0): brokers.stored["t", 0] + rate // 2}
            brokers.ends = {("t", 0): brokers.stored["t", 0] + left}
            is_long = asked_for(backlog, clock, 0.5)
        return is_long

    brokers.stored, brokers.ends = {("t", 0): 0}, {("t", 0): 40_000}
    assert not works(200_000, 40_000)
    assert works(20_000, 400_000)
    assert works(20_000, 40_000), "by now it is known as a slow one"
    assert not works(20_000, 2_000)


def test_a_sink_that_does_not_move_is_not_waited_for_long(backlog: SinkBacklog, brokers: Brokers, clock: Clock) -> None:
    """Nor for the topic of a table that is stopped: what that has to read does not count for others."""
    brokers.stored, brokers.ends = {("t", 0): 0, ("u", 0): 0}, {("t", 0): 100_000, ("u", 0): 0}
    assert asked_for(backlog, clock, 25)
    assert not asked_for(backlog, clock, 10)
    assert not backlog.is_long("u")
    brokers.stored["t", 0] = 1
    assert asked_for(backlog, clock, 1)
    assert asked_for(backlog, clock, 1, "u")


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_sink_that_had_nothing_to_read_is_waited_for(
    backlog: SinkBacklog, brokers: Brokers, clock: Clock, is_asked: bool
) -> None:
    """However long ago it moved, and whether or not somebody asked all the while."""
    brokers.stored = brokers.ends = {("t", 0): 7}
    assert not asked_for(backlog, clock, 60 if is_asked else 1)
    clock.now += 0 if is_asked else 3_600
    brokers.ends = {("t", 0): 100_007}
    assert asked_for(backlog, clock, 1)
