"""The topics of one session of the sink: from which cut on a topic counts as the one that the bridge knows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from cdc.base.lsn import ZERO
from cdc.contract.known_topic import KnownTopic
from cdc.contract.ports import RecordReader, ReplicaWriter, Restored, TopicFacts
from cdc.contract.record import Progress, SourceIdentity
from cdc.kafka.replay.backfills import StoredTopic
from cdc.kafka.replay.cut import Cut, CutBuffer
from cdc.sink.apply.topics import MirroredTopics, RebuildOrder

OLD, NEW = KnownTopic("old", (0,), (0,)), KnownTopic("new", (0,), (0,))


class Reader:
    """Shows the topic that was made anew."""

    def look_at(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        return {topic: TopicFacts("new", (0,), (0,), 60.0, 60.0) for topic in topics}

    def add(self, _starts: object) -> None:
        pass


class Replica:
    """Takes every topic into the cut."""

    def begin(self, *_: object, **__: object) -> str:
        return "joined"


def mirrored(published: Mapping[str, StoredTopic]) -> MirroredTopics:
    return MirroredTopics(
        cast("RecordReader", Reader()),
        cast("ReplicaWriter[Any]", Replica()),
        CutBuffer(100, 1000, ZERO),
        Restored(None, {}, {}, 0.0, {}),
        published,
        RebuildOrder(),
    )


def cut(offset: int) -> Cut:
    return Cut(Progress(ZERO, None, 0, SourceIdentity("1", 1, 1)), offset)


def test_a_topic_that_the_bridge_notes_before_its_definition_comes() -> None:
    """The bridge may note a topic long before it writes the first row. The sink forgot that note, and waited for ever
    for another one: a table was never exact until the sink started again."""
    topics = mirrored({"t": StoredTopic(OLD, 3)})
    topics.saw("t", NEW, 20)
    topics.take_up({"t": "public.t"}, 0.0)
    assert topics.unmet(cut(20)) == {"t"}
    assert topics.unmet(cut(21)) == frozenset()


def test_a_topic_that_the_bridge_has_not_noted_as_it_is() -> None:
    topics = mirrored({"t": StoredTopic(OLD, 3)})
    topics.take_up({"t": "public.t"}, 0.0)
    assert topics.unmet(cut(100)) == {"t"}
    topics.saw("t", OLD, 101)
    assert topics.unmet(cut(102)) == {"t"}
    topics.saw("t", NEW, 102)
    assert topics.unmet(cut(102)) == {"t"}
    assert topics.unmet(cut(103)) == frozenset()
