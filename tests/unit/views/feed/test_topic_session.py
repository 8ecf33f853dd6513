"""When a session of other programs' topics ends, so that another one looks at them again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

import pytest

from cdc.base.config import OtherTopic
from cdc.contract.ports import BeginAnew, Partition, StoredRecord, TopicFacts
from cdc.views.feed import topics
from cdc.views.feed.topics import TopicSession
from cdc.views.store.memory import MemoryStore
from cdc.views.table.topic_writer import TopicWriter

FACTS = TopicFacts("first", (0,), (0,), 0.0, 86_400.0)


class Reader:
    """An empty topic; another one takes its place when it was looked at."""

    def __init__(self, after: TopicFacts | None) -> None:
        self._found = [{"names": FACTS}, {} if after is None else {"names": after}]
        self._starts: dict[Partition, int] = {}

    def look_at(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        assert list(topics) == ["names"]
        return self._found.pop(0) if len(self._found) > 1 else self._found[0]

    def partitions(self, topic: str) -> list[Partition]:
        raise NotImplementedError

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        raise NotImplementedError

    def add(self, starts: Mapping[Partition, int]) -> None:
        self._starts |= starts

    def again(self, starts: Mapping[Partition, int]) -> None:
        raise NotImplementedError

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        return []

    def positions(self) -> Mapping[Partition, int]:
        return self._starts

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        return self._starts

    def hold(self, partitions: Collection[Partition]) -> None:
        raise NotImplementedError


def session(reader: Reader, stop: threading.Event, on_commit: Callable[[Mapping[str, int]], None]) -> TopicSession:
    writer = TopicWriter(MemoryStore(), "x", {"names": OtherTopic()})
    assert writer.lock()
    return TopicSession(reader, writer, ["names"], stop, on_commit)


@pytest.mark.parametrize(
    "after",
    [
        None,
        FACTS._replace(topic_id="second"),
        FACTS._replace(low=(0, 0), ends=(0, 0)),
        FACTS._replace(policy="compact,delete"),
    ],
    ids=["gone", "made anew since the first look", "more partitions", "not compacted any more"],
)
def test_a_topic_that_is_not_what_it_was_is_looked_at_again(
    after: TopicFacts | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "LOOK_S", 0.0)
    with pytest.raises(BeginAnew):
        session(Reader(after), threading.Event(), lambda _: None).run()


def test_after_the_clock_was_set_back_nobody_knows_how_long_a_topic_was_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next session goes by what is stored, and this one says nothing more of its tables."""
    hours, commits = [0.0], []
    with monkeypatch.context() as clock:
        clock.setattr("time.time", lambda: 1_700_000_000.0 + time.monotonic() + hours[0])

        def on_commit(rows: Mapping[str, int]) -> None:
            commits.append(rows)
            hours[0] = -3_600.0

        with pytest.raises(BeginAnew):
            session(Reader(FACTS), threading.Event(), on_commit).run()
    assert len(commits) == 1


def test_a_topic_that_stays_what_it_was_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "LOOK_S", 0.0)
    commits: list[object] = []
    stop = threading.Event()

    def on_commit(rows: Mapping[str, int]) -> None:
        commits.append(rows)
        if len(commits) == 2:
            stop.set()

    session(Reader(FACTS._replace(ends=(5,))), stop, on_commit).run()
    assert len(commits) == 3
