"""What the watch over topics makes of the brokers' answers, which come later than its questions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest

from cdc.base.config import Config
from cdc.base.errors import GapError
from cdc.bridge import topic_watch
from cdc.bridge.topic_watch import TopicWatch
from cdc.contract.known_topic import KnownTopic
from tests.support.waiting import eventually

STATE = KnownTopic("id", (0,), (7,))


class Tables:
    """Captured tables, by topic."""

    def __init__(self, *topics: str) -> None:
        self.topics: dict[str, Sequence[str]] = {each: [each] for each in topics}


class Broker:
    """Brokers whose answers wait until they are let go."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.asked: list[Collection[str]] = []
        self.may_answer = threading.Semaphore(0)

    def look_at(self, _admin: object, topics: Collection[str]) -> dict[str, KnownTopic]:
        self.asked.append(topics)
        assert self.may_answer.acquire(timeout=30)
        return {each: STATE for each in topics if each in self.topics}


Watching = Callable[[Broker, Tables], TopicWatch]


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    watches: list[TopicWatch] = []

    def make(broker: Broker, tables: Tables) -> TopicWatch:
        monkeypatch.setattr(topic_watch, "look_at", broker.look_at)
        config = Config.model_validate(
            {"name": "t", "source": {"dsn": "postgresql://h/d", "tables": ["public.*"]}, "kafka": {"bootstrap": "h:1"}}
        )
        admin: Any = None
        recorded = {"a": STATE, "b": STATE}
        watches.append(TopicWatch(config, admin, tables, recorded, lambda *_: None, interval_s=-1))
        return watches[-1]

    yield make
    for each in watches:
        each.close()


def looked(watch: TopicWatch, broker: Broker) -> None:
    """Take the answer to the question that is under way, and ask the next one."""
    broker.may_answer.release()
    count = len(broker.asked)

    def next_one() -> bool:
        watch.look()
        return len(broker.asked) > count

    eventually(next_one)


def test_a_topic_that_was_not_asked_for_is_not_gone(watching: Watching) -> None:
    """A table took the name of topic b, which is on record, while the brokers were asked for a alone."""
    broker, tables = Broker("a", "b"), Tables("a")
    watch = watching(broker, tables)
    watch.look()
    tables.topics["b"] = ["b"]
    looked(watch, broker)
    assert broker.asked == [{"a"}, {"a", "b"}]
    broker.topics = ("a",)
    with pytest.raises(GapError, match="topic 'b' is gone"):
        looked(watch, broker)
    broker.may_answer.release()


def test_a_topic_that_nobody_watches_any_more_may_go(watching: Watching) -> None:
    broker, tables = Broker("a"), Tables("a", "b")
    watch = watching(broker, tables)
    watch.look()
    del tables.topics["b"]
    looked(watch, broker)
    assert broker.asked[-1] == {"a"}
    broker.may_answer.release()
