"""What backfills and repairs need of the rest of the bridge, so that they can be tried without servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Relation
from cdc.contract.record import BackfillProgress, BackfillRequest, Ready


class Requests(Protocol):
    """What people ask."""

    def take(self) -> Sequence[BackfillRequest]:
        """Requests that arrived since the last call."""

    def close(self) -> None:
        """Ask no more."""


class Ghosts(Protocol):
    """Keys that a topic has and its table has not."""

    def take(self) -> list[bytes] | None:
        """Some keys, maybe none at the moment; None when all were told."""

    def close(self) -> None:
        """Look for no more."""


class Surroundings(Protocol):
    """What backfills and repairs do to the world, and ask of it."""

    def tables(self) -> Mapping[str, tuple[TableInfo, str]]:
        """Every table in scope by name, with its topic."""

    def encoder(self, relation: Relation) -> TableEncoder | None:
        """Of a relation as it was read; its definition is published. None while the stream is not there yet, or the
        topic has to begin anew first."""

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes, /) -> None:
        """Take a record."""

    def produce_all(self, records: Iterable[Ready], /) -> None:
        """Take records, each with a header."""

    def bury(self, topic: str, partition: int, key: bytes, header: bytes, /) -> None:
        """Take a tombstone for a partition to which its key does not belong."""

    def note(self, key: bytes, value: bytes | None) -> None:
        """Take a record of the progress topic."""

    def report(self, progress: BackfillProgress) -> None:
        """A table's progress was noted."""

    def end_offsets(self, topic: str) -> tuple[int, ...]:
        """Of the topic's partitions now, in order."""

    def ghosts(self, topic: str, below: tuple[int, ...]) -> Ghosts:
        """Keys whose latest record lies below these offsets, in the topic as it is committed now."""

    def wal_end(self) -> LSN:
        """Of the source now."""

    def flush_wal(self) -> None:
        """Have the source write out WAL that the stream waits for."""
