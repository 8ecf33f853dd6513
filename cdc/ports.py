"""The Protocols between rooms: what one room needs of another, so that ``app`` can hand them to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from cdc.lsn import LSN
from cdc.record import Progress, Record, TableSchema


class Publisher(Protocol):
    """Kafka in: one transactional producer."""

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes) -> None:
        """Add a record to the open Kafka transaction, opening one if there is none; blocks while the queue is full."""

    def commit(self, progress: Progress) -> None:
        """Write ``progress`` and commit the Kafka transaction. On return all of it is readable, or an error was raised.

        Raises:
            TopicUnavailable: the Kafka transaction was aborted; start again from the stored progress.
            FencedError: another process took over.
            TopicRefused: Kafka refuses a record or a right.
        """


class StoredRecord(NamedTuple):
    """A record as read back: where it lies and what it holds. ``header`` is ``b""`` when there is none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    header: bytes


class RecordReader(Protocol):
    """Kafka out: committed records of assigned partitions, with positions that count markers and aborted records."""

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        """Up to ``max_records`` committed records; empty when none came in time."""

    def positions(self) -> Mapping[tuple[str, int], int]:
        """Next offset per (topic, partition); reaches a captured end offset even when only markers remain before it."""

    def high_watermarks(self) -> Mapping[tuple[str, int], int]:
        """End offsets (read_uncommitted) of every assigned partition, asked of the brokers now."""


class TableBatch(NamedTuple):
    """The last record of each key of one replica table below a cut: value None deletes."""

    topic: str
    records: Sequence[StoredRecord]


class ReplicaWriter(Protocol):
    """The replica database: rows, offsets and the cut's LSN in one transaction."""

    def restore(self) -> tuple[LSN | None, Mapping[tuple[str, int], int]]:
        """The recorded cut and next offsets, (None, {}) at the first start."""

    def learn(self, schemas: Iterable[TableSchema]) -> None:
        """Take notice of relation definitions, creating or widening replica tables as needed."""

    def apply(
        self, batches: Iterable[TableBatch], offsets: Mapping[tuple[str, int], int], progress: Progress
    ) -> None:
        """Apply one cut, or nothing at all."""


class LiveKeys(Protocol):
    """Keys whose latest committed record is not a tombstone, topic partition by topic partition."""

    def live_keys(self, topic: str) -> Iterator[bytes]:
        """Every live key of the topic up to its end now; memory grows with one partition's keys."""
