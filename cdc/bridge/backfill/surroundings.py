"""What backfills and repairs need from the rest of the bridge; tests put something else in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Relation
from cdc.contract.record import BackfillProgress, BackfillRequest, Ready


class Requests(Protocol):
    """The source of what people request."""

    def take(self) -> Sequence[BackfillRequest]:
        """Returns the requests that arrived since the last call."""

    def close(self) -> None:
        """Stop reading requests."""


class Ghosts(Protocol):
    """Keys that a topic holds, but its table does not."""

    def take(self) -> list[bytes] | None:
        """Returns some keys, maybe none at the moment; None after the last one."""

    def close(self) -> None:
        """Stop looking for them."""


class Surroundings(Protocol):
    """What backfills and repairs do to the outside world, and ask of it."""

    def tables(self) -> Mapping[str, tuple[TableInfo, str]]:
        """Returns every table in scope by name, with its topic."""

    def encoder(self, relation: Relation) -> TableEncoder | None:
        """Returns the encoder of a relation that was read, after publishing its definition.

        None while the stream has not come to that definition, or while the topic has to begin anew first.
        """

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes, /) -> None:
        """Take a record."""

    def produce_all(self, records: Iterable[Ready], /) -> None:
        """Take records, each with a header."""

    def bury(self, topic: str, partition: int, key: bytes, header: bytes, /) -> None:
        """Take a tombstone for a partition that its key does not belong to."""

    def give_up(self, topic: str, keys: Sequence[bytes], header: bytes) -> int:
        """Remove the entries that these keys of a topic have in quarantine. Returns how many had one."""

    def note(self, key: bytes, value: bytes | None) -> None:
        """Take a record for the progress topic."""

    def report(self, progress: BackfillProgress) -> None:
        """Learn that a table's progress was noted."""

    def end_offsets(self, topic: str) -> tuple[int, ...]:
        """Returns where the topic's partitions end now, in their order."""

    def ghosts(self, topic: str, below: tuple[int, ...]) -> Ghosts:
        """Returns the keys whose latest record lies below these offsets, in the topic as it is committed now."""

    def wal_end(self) -> LSN:
        """Returns the end of the source's WAL now."""

    def flush_wal(self) -> None:
        """Have the source write out the WAL that the stream waits for."""

    def is_sink_overtaken(self, topic: str) -> bool:
        """Whether the sink follows a topic, and has more to read than it can take in a moment."""

    def sink_gets(self, rows: int) -> None:
        """Learn how many rows were produced for the sink to read."""
