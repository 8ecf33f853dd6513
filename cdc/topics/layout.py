"""How a partition lies on disk, worked out from its batches: what was cleaned, which segments are closed.

No broker tells where segments begin. But it closes them by rules, and the rules need only what batches say: a segment
is closed by the append that no longer fits, or whose timestamp is more than ``segment.ms`` (on a compacted topic, or
``max.compaction.lag.ms``) after that of the segment's first batch. A pass of the cleaner ends at the beginning of a
segment, so the rules are followed from the last batch on that bears the cleaner's marks. A pass may have ended a little
later, behind batches of which it removed nothing: then the segments found here are shifted, by one segment at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc.contract.compaction import TopicSettings
from cdc.topics.batches import RecordBatch


@dataclass(slots=True)
class Segment:
    """A part of the log behind what was cleaned; the last of them is the active one.

    Attributes:
        base: its first offset.
        size: bytes.
        first_ms: timestamp of the first batch, from which the time until it is closed is counted.
        largest_ms: largest timestamp in it.
        closed_ms: timestamp of the append that closed it; None while it is active.
    """

    base: int
    size: int
    first_ms: int
    largest_ms: int
    closed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OpenKafkaTransaction:
    """A Kafka transaction without an end.

    Attributes:
        since_ms: timestamp of its first batch.
    """

    producer_id: int
    epoch: int
    offset: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Horizons:
    """Batches that a cleaner has met: their first and last offsets and when their tombstones may go, in order."""

    bases: Sequence[int]
    lasts: Sequence[int]
    moments_ms: Sequence[int]


@dataclass(frozen=True, slots=True)
class Layout:
    """A partition's batches in sum.

    Attributes:
        cleaned_until: behind the last batch with the cleaner's marks; the log's start when there is none.
        cleaned_bytes: before it.
        cleaned_ms: a pass took place after this time; None when none can be seen.
        segments: from ``cleaned_until`` on; empty when nothing follows.
        newest_ms: largest timestamp of the last segment's batches, -1 for none.
        open_transactions: the oldest first.
    """

    start: int
    end: int
    size: int
    cleaned_until: int
    cleaned_bytes: int
    cleaned_ms: int | None
    segments: tuple[Segment, ...]
    horizons: Horizons
    open_transactions: tuple[OpenKafkaTransaction, ...]

    @property
    def active(self) -> Segment | None:
        """The segment that is written to."""
        return self.segments[-1] if self.segments else None


class LayoutBuilder:
    """Takes the batches of one partition in order.

    Args:
        start: the offset that the first batch is expected at.
        settings: when segments are closed.
    """

    def __init__(self, start: int, settings: TopicSettings) -> None:
        self._start = self._end = start
        self._settings = settings
        self._size = 0
        self._cleaned_until, self._cleaned_bytes = start, 0
        self._cleaned_ms: int | None = None
        self._segments: list[Segment] = []
        self._horizons: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._open: dict[int, OpenKafkaTransaction] = {}

    def add(self, batches: Iterable[RecordBatch]) -> None:
        """The next batches."""
        for batch in batches:
            has_gap = batch.base > self._end
            self._size += batch.size
            self._end = batch.last + 1
            self._follow_transactions(batch)
            if batch.horizon_ms is not None:
                for kept, value in zip(self._horizons, (batch.base, batch.last, batch.horizon_ms), strict=True):
                    kept.append(value)
            if batch.was_cleaned:
                self._clean_until(self._end, self._size, batch.max_ms)
            else:
                if has_gap:
                    self._clean_until(batch.base, self._size - batch.size, batch.max_ms)
                self._append(batch)

    def built(self) -> Layout:
        """What was seen."""
        return Layout(
            start=self._start,
            end=self._end,
            size=self._size,
            cleaned_until=self._cleaned_until,
            cleaned_bytes=self._cleaned_bytes,
            cleaned_ms=self._cleaned_ms,
            segments=tuple(self._segments),
            horizons=Horizons(*self._horizons),
            open_transactions=tuple(sorted(self._open.values(), key=lambda each: each.offset)),
        )

    def _clean_until(self, offset: int, size: int, ms: int) -> None:
        self._cleaned_until, self._cleaned_bytes, self._cleaned_ms = offset, size, ms
        self._segments.clear()

    def _append(self, batch: RecordBatch) -> None:
        active = self._segments[-1] if self._segments else None
        if active is not None and (
            active.size > self._settings.segment_bytes - batch.size
            or batch.max_ms - active.first_ms > self._settings.roll_ms
        ):
            active.closed_ms = batch.max_ms
            active = None
        if active is None:
            self._segments.append(Segment(batch.base, batch.size, batch.max_ms, batch.max_ms))
        else:
            active.size += batch.size
            active.largest_ms = max(active.largest_ms, batch.max_ms)

    def _follow_transactions(self, batch: RecordBatch) -> None:
        if batch.producer is None:
            return
        producer_id, epoch = batch.producer
        if batch.is_control:
            self._open.pop(producer_id, None)
        elif producer_id not in self._open:
            self._open[producer_id] = OpenKafkaTransaction(producer_id, epoch, batch.base, batch.max_ms)
