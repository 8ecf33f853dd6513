"""Works out from a partition's batches how it lies on disk: what was cleaned, and which segments are closed.

No broker says where segments begin. But brokers close segments by rules that need only what batches say. An append
closes a segment if it does not fit, or if its timestamp is more than ``segment.ms`` after that of the segment's first
batch (in a compacted topic, also ``max.compaction.lag.ms``).

A pass of the cleaner ends at the beginning of a segment. So the rules are applied from the last batch with the
cleaner's marks on. The pass may have ended a little later, after batches from which it removed nothing. Then the
segments found here are shifted, by one segment at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc.contract.compaction import TopicSettings
from cdc.topics.batches import RecordBatch


@dataclass(slots=True)
class Segment:
    """A segment of the log after the cleaned part. The last one is the active segment.

    Attributes:
        base: the first offset.
        size: bytes.
        first_ms: timestamp of the first batch; the time until the segment is closed counts from here.
        largest_ms: the largest timestamp in the segment.
        closed_ms: timestamp of the append that closed the segment; None while it is active.
    """

    base: int
    size: int
    first_ms: int
    largest_ms: int
    closed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OpenKafkaTransaction:
    """A Kafka transaction that has not ended.

    Attributes:
        producer_id, epoch: its producer.
        offset: the first offset of its first batch.
        since_ms: timestamp of that batch.
    """

    producer_id: int
    epoch: int
    offset: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Horizons:
    """Batches that the cleaner has met, in order: first and last offsets, and when it may remove their tombstones."""

    bases: Sequence[int]
    lasts: Sequence[int]
    moments_ms: Sequence[int]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a partition lies on disk.

    Attributes:
        start: the first offset.
        end: the offset after the last batch.
        size: bytes of all batches.
        cleaned_until: the offset after the last batch with the cleaner's marks; ``start`` when there is none.
        cleaned_bytes: bytes before ``cleaned_until``.
        cleaned_ms: the cleaner passed after this time; None when it left no marks.
        segments: the segments from ``cleaned_until`` on; empty when nothing follows.
        horizons: the batches that the cleaner has met.
        open_transactions: Kafka transactions that have not ended, the oldest first.
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
    """Builds the layout of one partition from its batches, in order.

    Args:
        start: the offset at which the first batch is expected.
        settings: the topic's settings, which say when segments are closed.
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
        """Adds the next batches."""
        for batch in batches:
            has_gap = batch.base > self._end  # the cleaner removed whole batches here
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
        """Returns the layout of the batches so far."""
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
