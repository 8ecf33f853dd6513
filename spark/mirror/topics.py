"""The topics that a mirror reads: where each begins and ends, and whether what the lake holds still follows from it.

Offsets are good for one topic only, and only while nothing behind them can have been erased unseen. Where that is not
so, nobody can tell which rows of the lake are ghosts: the run is refused, and the operator has the tables built anew.
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

_REBUILD: Final = "build the tables anew: the same command with --rebuild"


class SeenEnds(NamedTuple):
    """Where the topics ended at a moment."""

    extents: Mapping[str, Extent]
    at_ms: int

    def are_behind(self, progress: StreamingQueryProgress | None) -> bool:
        """Whether the query has applied everything up to there."""
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
        brokers: tell about them.
        topics: their names.
        positions: where the lake stands, by topic.

    Attributes:
        seen: the topics when the run began.

    Raises:
        JobError: a topic cannot be read, or the lake cannot go on where it stands.
    """

    def __init__(self, brokers: Brokers, topics: Collection[str], positions: Mapping[str, LakePosition]) -> None:
        self._brokers = brokers
        self._topics = topics
        self._positions = {topic: positions.get(topic, LakePosition()) for topic in topics}
        self.seen = self.look()
        for topic, position in self._positions.items():
            self._refuse_if_lost(topic, position)
            self._refuse_if_erased(topic, position)

    def look(self) -> SeenEnds:
        """The topics as they are now."""
        at_ms = time.time_ns() // 1_000_000
        return SeenEnds({topic: self._brokers.extent(topic) for topic in self._topics}, at_ms)

    def refuse_others(self) -> None:
        """See that each is still the topic that it was when the run began.

        Raises:
            TopicChanged: one was made anew.
            TopicUnreadable: one is gone.
        """
        self._brokers.refuse_another(*self.seen.extents.values(), remedy=_REBUILD)

    def topic_id(self, topic: str) -> str:
        """Whose offsets they are."""
        return self.seen.extents[topic].topic_id

    def partitions(self, topic: str) -> int:
        """How many the topic has."""
        return len(self.seen.extents[topic].ends)

    def began(self, topic: str) -> Offsets:
        """The lake's offsets when the run began."""
        return self._positions[topic].offsets

    def starts(self) -> str:
        """``startingOffsets`` of Spark's connector."""
        starts = {
            topic: {
                str(partition): self.began(topic).get(partition, start) for partition, start in enumerate(extent.starts)
            }
            for topic, extent in self.seen.extents.items()
        }
        return json.dumps(starts)

    def _refuse_if_lost(self, topic: str, position: LakePosition) -> None:
        if why := position.why_lost(self.seen.extents[topic]):
            raise TopicChanged(
                f"topic {topic} {why}: rows of the copy may be out of date or deleted since", remedy=_REBUILD
            )

    def _refuse_if_erased(self, topic: str, position: LakePosition) -> None:
        """Whoever was away for longer than tombstones are kept may have missed one."""
        retention_ms = int(self._brokers.settings(topic)["delete.retention.ms"])
        ends = dict(enumerate(self.seen.extents[topic].ends))
        if position.may_have_missed(ends, self.seen.at_ms, retention_ms):
            away_s = (self.seen.at_ms - position.current_ms) // 1000
            raise PastErased(
                f"topic {topic} was last read to its end {away_s:,} s ago, and "
                f"tombstones are kept for {retention_ms // 1000:,} s (delete.retention.ms): deletes may have been "
                "missed",
                remedy=_REBUILD,
            )
