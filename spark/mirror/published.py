"""How far the bridge has published its source: the LSN at which a batch may be cut, and whether the cut is proven.

Theory of operation. Everything that committed before the *progress* is in the topics, and LSNs never go down within a
partition. So who reads all partitions to ends that were asked for after the progress was read, and takes what lies
below it, has the state of all tables at that LSN. One doubt is left: compaction may have erased a record below the
progress because a later one of the same key lies above it. But nothing above it was published when the progress was
read, unless the progress itself says so. And Kafka lets no record erase another before it is as old as
``min.compaction.lag.ms``. So the cut is proven if the reading took less time than that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from cdc.base.lsn import LSN
from cdc.contract.backfill import is_backfill_key, parse_backfill
from cdc.contract.jobspec.deployment import Stream
from cdc.contract.naming import progress_topic
from cdc.contract.progress import parse_progress, stream_key
from cdc.contract.record import BackfillProgress, Progress
from cdc.spark.offsets import Brokers
from cdc.spark.snapshot.point import PublishedPoint, whole_since

_CLOCKS_DIFFER_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class CutPoint:
    """The LSN at which a batch may be cut.

    Attributes:
        lsn: everything that committed before this position is published.
        is_alone: nothing at this position or after it had been published at ``at_ms``.
        at_ms: a time before the progress was read.
        point: the same, with the backfills.
        lacking: tables of which the bridge has put rows aside.
    """

    lsn: LSN
    is_alone: bool
    at_ms: int
    point: PublishedPoint
    lacking: frozenset[str] = frozenset()

    def is_proven(self, read_ms: int, lag_ms: int) -> bool:
        """Tells whether no record below the cut can have been erased by one above it.

        Args:
            read_ms: when everything below the cut had been read.
            lag_ms: the topic's ``min.compaction.lag.ms``.
        """
        return self.is_alone and read_ms - self.at_ms < lag_ms - _CLOCKS_DIFFER_MS

    def is_whole(self, table: str) -> bool:
        """Tells whether the topic of a table holds every row at the cut: its backfill is done, and no row set aside."""
        since = whole_since(self.point, table)
        return since is not None and since <= self.lsn and table not in self.lacking


@dataclass(slots=True)
class PublishedSoFar:
    """The progress topic, read on from where the last look ended.

    Attributes:
        brokers: the cluster.
        stream: the bridge.
    """

    brokers: Brokers
    stream: Stream
    _next: int = 0
    _newest: Progress | None = None
    _backfills: dict[str, list[BackfillProgress]] = field(default_factory=dict)

    def look(self) -> CutPoint:
        """Returns the newest point.

        Raises:
            TopicUnreadable: Kafka does not answer, or there is no progress topic.
        """
        at_ms = time.time_ns() // 1_000_000
        records, self._next = self.brokers.read_from(progress_topic(self.stream.name), self._next)
        for key, value in records:
            if value is None:
                continue
            if key == stream_key(self.stream.slot):
                self._newest = parse_progress(value)
            elif key is not None and is_backfill_key(key):
                backfill = parse_backfill(value)
                self._backfills.setdefault(backfill.table, []).append(backfill)
        newest = self._newest
        lsn = LSN(0) if newest is None else newest.lsn
        is_alone = newest is not None and is_newest(newest)
        lacking = () if newest is None else newest.quarantined
        return CutPoint(
            lsn, is_alone, at_ms, PublishedPoint(lsn, self._backfills), frozenset(table for table, _ in lacking)
        )


def is_newest(progress: Progress) -> bool:
    """Tells whether nothing at the progress or after it was published when its record was made."""
    lead = progress.lead
    return progress.partial is None and (lead is None or (not lead.is_open and lead.sent <= progress.lsn))
