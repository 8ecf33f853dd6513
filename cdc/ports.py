"""The Protocols between rooms: what one room needs of another, so that ``app`` can hand them to each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from cdc.record import Progress, SourceIdentity, TableSchema


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


Partition: TypeAlias = tuple[str, int]
"""A topic and a partition number."""


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

    def partitions(self, topic: str) -> Sequence[Partition]:
        """The topic's partitions; none when there is no such topic."""

    def add(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions too, from these offsets on."""

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        """Up to ``max_records`` committed records; empty when none came in time."""

    def positions(self) -> Mapping[Partition, int]:
        """Next offset per partition."""

    def fence(self) -> Mapping[Partition, int]:
        """Asks the brokers now: positions that, once reached, mean that all which was committed before was read."""

    def hold(self, partitions: Collection[Partition]) -> None:
        """Read only the other partitions, until the next call says otherwise."""


class ReplicaTable(NamedTuple):
    """A replica table as its readers see it.

    Attributes:
        topic: whose state it mirrors.
        name: ``schema.table`` in the replica.
        state: one of ``metrics.TABLE_STATES``.
        reason: why it is stopped, else None.
        rows_applied: upserts and deletes since it was created.
    """

    topic: str
    name: str
    state: str
    reason: str | None
    rows_applied: int


class Restored(NamedTuple):
    """What a replica remembers of the sink of one name: the cut it stands at and the next offsets to read."""

    progress: Progress | None
    offsets: Mapping[Partition, int]


class PreparedRows(Protocol):
    """Rows of one replica table in the form in which the database takes them."""

    @property
    def topic(self) -> str:
        """Whose state they are."""

    def __len__(self) -> int:
        """How many keys are upserted or deleted."""


Rows = TypeVar("Rows", bound=PreparedRows)


class ReplicaWriter(Protocol[Rows]):
    """The replica database: rows, offsets and the cut's progress in one transaction.

    ``write`` opens that transaction, ``commit`` ends it. All calls but ``prepare`` use its one session and must not
    overlap; ``prepare`` only computes and may run beside them.
    """

    def restore(self) -> Restored:
        """The recorded cut and next offsets; nothing at the first start."""

    def learn(self, schemas: Sequence[TableSchema]) -> None:
        """Take notice of relation definitions in the order in which they were used: create or widen replica tables.

        A table that cannot be mirrored is stopped, the others go on.
        """

    def stop_topic(self, topic: str, reason: str) -> None:
        """Write down that a table takes no rows, and why. Inside an open transaction it is part of it."""

    def tables(self) -> Mapping[str, ReplicaTable]:
        """Every known replica table by topic."""

    def active(self) -> Collection[str]:
        """Topics whose tables take rows."""

    def meet_source(self, source: SourceIdentity) -> None:
        """From now on, refuse to mirror a table of the source into itself. Call it before ``learn``."""

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> Rows:
        """The last record of each key, in the database's form.

        Raises:
            RecordRejected: a record has no form that the table takes.
        """

    def write(self, batches: Sequence[Rows]) -> None:
        """Apply rows in the open replica transaction.

        Raises:
            RecordRejected: the database rejects a record.
            ReplicaUnavailable: nothing of the open transaction is left.
        """

    def commit(
        self, progress: Progress, offsets: Mapping[Partition, int], loading: Collection[str] = frozenset()
    ) -> None:
        """Record the cut and the offsets to go on from, and commit. Tables of topics in ``loading`` are not whole."""

    def stop_table(self, record: StoredRecord, reason: str) -> None:
        """Roll back what is open; write down that a record stops its table, and why."""
