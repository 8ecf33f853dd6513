"""The topics that a mirror reads: where each begins and ends, and whether the lake can go on at its offsets.

Offsets are valid for one topic only, and only while nothing after them can have been erased unseen. Otherwise nobody
can tell which rows of the lake are ghosts. Then the run is refused, and the operator has to rebuild the tables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryProgress

from cdc.spark.errors import PastErased, TopicChanged
from cdc.spark.mirror.position import LakePosition, Offsets
from cdc.spark.offsets import Brokers, Extent

_REBUILD: Final = "rebuild the copies with the same command and --rebuild"


class SeenEnds(NamedTuple):
    """The ends of the topics at some moment."""

    extents: Mapping[str, Extent]
    at_ms: int

    def are_reached_by(self, progress: StreamingQueryProgress | None) -> bool:
        """Tells whether the query has applied everything up to these ends."""
        if progress is None:
            return False
        read = json.loads(progress.sources[0].endOffset) or {}  # null before the first batch
        return all(
            read.get(topic, {}).get(str(partition), 0) >= end
            for topic, extent in self.extents.items()
            for partition, end in enumerate(extent.ends)
        )


class TopicsOfRun:
    """The topics of one run, as they were when it began.

    Args:
        brokers: the cluster.
        topics: the topics' names.
        positions: the lake's position in each topic.

    Attributes:
        seen: the ends of the topics when the run began.

    Raises:
        JobError: a topic cannot be read, or the lake cannot go on at its position.
    """

    def __init__(self, brokers: Brokers, topics: Collection[str], positions: Mapping[str, LakePosition]) -> None:
        self._brokers = brokers
        self._topics = topics
        self._positions = {topic: positions.get(topic, LakePosition()) for topic in topics}
        self.seen = self.look()
        for topic, position in self._positions.items():
            refuse_if_lost(position, self.seen.extents[topic])
            self._refuse_if_erased(topic, position)

    def look(self) -> SeenEnds:
        """Asks for the ends of the topics now."""
        at_ms = time.time_ns() // 1_000_000
        return SeenEnds({topic: self._brokers.extent(topic) for topic in self._topics}, at_ms)

    def refuse_others(self) -> None:
        """Checks that each topic is still the same as when the run began.

        Raises:
            TopicChanged: a topic was recreated.
            TopicUnreadable: a topic is gone.
        """
        self._brokers.refuse_another(*self.seen.extents.values(), remedy=_REBUILD)

    def topic_id(self, topic: str) -> str:
        """Returns Kafka's id of the topic."""
        return self.seen.extents[topic].topic_id

    def partitions(self, topic: str) -> int:
        """Returns how many partitions the topic has."""
        return len(self.seen.extents[topic].ends)

    def began(self, topic: str) -> Offsets:
        """Returns the lake's offsets when the run began."""
        return self._positions[topic].offsets

    def starts(self) -> str:
        """Returns the ``startingOffsets`` for Spark's connector."""
        starts = {
            topic: {
                str(partition): self.began(topic).get(partition, start) for partition, start in enumerate(extent.starts)
            }
            for topic, extent in self.seen.extents.items()
        }
        return json.dumps(starts)

    def _refuse_if_erased(self, topic: str, position: LakePosition) -> None:
        """Refuses a lake that was away for longer than tombstones are kept, because it may have missed a delete."""
        retention_ms = int(self._brokers.settings(topic)["delete.retention.ms"])
        ends = dict(enumerate(self.seen.extents[topic].ends))
        if position.may_have_missed(ends, self.seen.at_ms, retention_ms):
            away_s = (self.seen.at_ms - position.current_ms) // 1000
            raise PastErased(
                f"topic {topic} was last read to its end {away_s:,} s ago, but "
                f"tombstones are kept for only {retention_ms // 1000:,} s (delete.retention.ms), so the copy may have "
                "missed deletes",
                remedy=_REBUILD,
            )


def refuse_if_lost(position: LakePosition, extent: Extent) -> None:
    """Checks that a copy can go on at its offsets.

    Raises:
        TopicChanged: reading on there would miss records or keep ghosts.
    """
    if why := position.why_lost(extent):
        raise TopicChanged(
            f"topic {extent.topic} {why}, so rows of the copy may be out of date or deleted since", remedy=_REBUILD
        )
