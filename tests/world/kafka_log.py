"""The log of a partition, and what goes into it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, Message

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
DeliveryCallback: TypeAlias = Callable[[KafkaError | None, Message], object]

CREATE_TIME: Final = 1
_BATCH_BYTES: Final = 61
_RECORD_BYTES: Final = 20
"""What a batch and a record take beside keys, values and headers, at most (message format 2)."""


class QueuedRecord(NamedTuple):
    """A record on its way into a log."""

    value: bytes | None
    key: bytes | None
    headers: Headers | None
    at_ms: int
    report: DeliveryCallback | None
    size: int


class DeliveryReport(NamedTuple):
    """A delivery report that waits to be told."""

    callback: DeliveryCallback | None
    error: KafkaError | None
    message: Message


class PartitionLog:
    """The log of a partition.

    Attributes:
        topic, number: which partition.
        low: the low watermark; nothing before it can be read.
        end: the high watermark, which the next record gets.
        messages, offsets: the records that are kept, in order, and their offsets.
        open: by producer id, the offsets of its records since it began a transaction here.
        aborted: offsets of records whose transaction was aborted.
        producers: idempotent producers that have written here.
    """

    __slots__ = ("_gone_at", "aborted", "end", "low", "messages", "number", "offsets", "open", "producers", "topic")

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.low = self.end = 0
        self.messages: list[Message] = []
        self.offsets: list[int] = []
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.producers: set[Hashable] = set()
        self._gone_at: dict[int, float] = {}

    @property
    def stable(self) -> int:
        """The last stable offset: where the first open transaction begins, or the end (KIP-98)."""
        for offsets in self.open.values():  # in the order of their first records
            return offsets[0]
        return self.end

    def append(self, records: Iterable[QueuedRecord], producer_id: int | None = None) -> int:
        """Store a batch; returns the offset of its first record.

        Args:
            records: the batch.
            producer_id: of its transaction; None outside of one.
        """
        first = at = self.end
        keep, keep_offset = self.messages.append, self.offsets.append
        for value, key, headers, at_ms, _, _ in records:
            keep(Message(self.topic, self.number, at, key, value, headers, None, (CREATE_TIME, at_ms)))
            keep_offset(at)
            at += 1
        self.end = at
        if producer_id is not None:
            self.open.setdefault(producer_id, []).extend(range(first, at))
        return first

    def mark(self, producer_id: int, *, is_commit: bool) -> None:
        """Write the control record that ends a transaction. It takes an offset, also where there are no records."""
        offsets = self.open.pop(producer_id, ())
        if not is_commit:
            self.aborted.update(offsets)
        self.end += 1

    def read(self, at: int, limit: int, most: int, *, committed: bool) -> tuple[Sequence[Message], int]:
        """Returns records from an offset on, and the offset to go on from.

        A reader of committed records never sees those that were aborted, and none at the last stable offset or after
        it. When it has read up to there, its next offset is past control records, aborted records and gaps (KIP-98).

        Args:
            at: the offset; a gap is skipped.
            limit: where to stop: the last stable offset, or the high watermark.
            most: how many records at most.
            committed: leave out aborted records.
        """
        offsets = self.offsets
        first = bisect_left(offsets, at)
        last = len(offsets) if limit >= self.end else bisect_left(offsets, limit)
        following = limit
        if last - first > most:
            last = first + most
            following = offsets[last]
        found: Sequence[Message] = self.messages[first:last]
        if committed and self.aborted:
            aborted = self.aborted
            found = [each for each, offset in zip(found, offsets[first:last], strict=True) if offset not in aborted]
        return found, following

    def delete(self, before: int) -> None:
        """Delete the records before an offset, as ``delete_records`` and retention do (KIP-107): ``low`` moves."""
        self.low = max(self.low, before)
        kept = bisect_left(self.offsets, self.low)
        del self.offsets[:kept], self.messages[:kept]

    def clean(self, now: float, *, until: int, lag_ms: int, retention_ms: int) -> None:
        """Compact a prefix: https://kafka.apache.org/documentation/#compaction.

        The last record of each key is kept, and every record keeps its offset. No record of an open transaction is
        touched, and no record that is younger than ``min.compaction.lag.ms``, or after one that is. A tombstone goes
        when ``delete.retention.ms`` have passed since it was first cleaned (KIP-534). The low watermark stays.

        Args:
            now: seconds since 1970.
            until: compact what is before this offset.
            lag_ms, retention_ms: settings of the topic.
        """
        until = min(until, self.stable)
        stop = bisect_left(self.offsets, until)
        youngest = now * 1_000 - lag_ms
        newest: dict[bytes | None, int] = {}
        for place in range(stop):
            message = self.messages[place]
            if lag_ms and message.timestamp()[1] > youngest:
                stop = place
                break
            if self.offsets[place] not in self.aborted:
                newest[message.key()] = self.offsets[place]
        kept = [
            place
            for place in range(stop)
            if newest.get(self.messages[place].key()) == self.offsets[place]
            and not (self.messages[place].value() is None and self._is_over(self.offsets[place], now, retention_ms))
        ]
        self.aborted.difference_update(self.offsets[:stop])
        self.messages[:stop] = [self.messages[place] for place in kept]
        self.offsets[:stop] = [self.offsets[place] for place in kept]

    def _is_over(self, offset: int, now: float, retention_ms: int) -> bool:
        """Whether a tombstone's time is over. It begins when the cleaner first meets it."""
        return now > self._gone_at.setdefault(offset, now + retention_ms / 1_000)


def batch_bytes(records: Iterable[QueuedRecord]) -> int:
    """Returns the size of a batch, as a broker compares it with ``max.message.bytes``; never too small."""
    return _BATCH_BYTES + sum(each.size for each in records)


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Returns the size of a record in a batch."""
    size = _RECORD_BYTES + len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(each or b"") for name, each in headers) if headers else size
