"""The Protocols between rooms: what one room needs of another, so that ``app`` can hand them to each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from cdc.base.errors import ReplicaRefused, with_remedy
from cdc.contract.record import Progress, SourceIdentity, TableSchema

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


class TableRejected(ReplicaRefused):
    """Rows that their replica table does not take: it stops, the others go on.

    Attributes:
        topic: of the table.
        reason: in the replica's words, or ours.
        record: the culprit, where one alone does it.
    """

    def __init__(
        self, topic: str, reason: str, record: StoredRecord | None = None, *, message: str = "", remedy: str
    ) -> None:
        self.topic = topic
        self.reason = reason
        self.record = record
        super().__init__(message or f"rows of topic {topic!r}: {reason}", remedy=remedy)

    @property
    def reason_and_remedy(self) -> str:
        """What is written down, in the form that an error is printed in."""
        return with_remedy(self.reason, self.remedy)


class TableHeld(Exception):
    """Somebody's lock keeps rows out of a topic's table: another session goes on without it until the lock is gone."""


class TopicFacts(NamedTuple):
    """A topic as the brokers tell it now.

    Attributes:
        topic_id: Kafka's own, new with every topic of the same name.
        low: by partition, the first offset that can be read; deleting records moves it, compaction does not.
        ends: by partition, the high watermark.
        compaction_lag_s: ``min.compaction.lag.ms``: a record cleans nothing away before it is that old.
        delete_retention_s: ``delete.retention.ms``: a tombstone stays so long after the cleaner met it.
        policy: ``cleanup.policy``, with commas where it is several.
    """

    topic_id: str
    low: Sequence[int]
    ends: Sequence[int]
    compaction_lag_s: float
    delete_retention_s: float
    policy: str = "compact"


class RecordReader(Protocol):
    """Kafka out: committed records of assigned partitions, with positions that count markers and aborted records."""

    def partitions(self, topic: str) -> Sequence[Partition]:
        """The topic's partitions; none when there is no such topic."""

    def look_at(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        """The topics as they are now; one that does not exist is left out."""

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """The topics' ids, with the count of their partitions; one that does not exist is left out."""

    def add(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions too, from these offsets on."""

    def again(self, starts: Mapping[Partition, int]) -> None:
        """Read partitions that are read already once more, from these offsets on."""

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        """Up to ``max_records`` committed records; empty when none came in time."""

    def positions(self) -> Mapping[Partition, int]:
        """Next offset per partition."""

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        """Asks the brokers now: positions that, once reached, mean that all which was committed before was read.

        Args:
            marked: topics in which every record belongs to a Kafka transaction; None for all.
        """

    def hold(self, partitions: Collection[Partition]) -> None:
        """Read only the other partitions, until the next call says otherwise."""


class ReplicaTable(NamedTuple):
    """A replica table as its readers see it.

    Attributes:
        topic: whose state it mirrors.
        name: ``schema.table`` in the replica.
        state: one of ``metrics.TABLE_STATES``.
        reason: why it is stopped or rebuilt, else None.
        rows_applied: upserts and deletes since it was created.
    """

    topic: str
    name: str
    state: str
    reason: str | None
    rows_applied: int


class Restored(NamedTuple):
    """What a replica remembers of the sink of one name.

    Attributes:
        progress: how far rows are applied.
        offsets: the next ones to read.
        topic_ids: whose offsets they are.
        caught_up_at: seconds since 1970; then the topics held nothing at or beyond ``progress`` and below is applied.
        read_since: the same, topic by topic, for tables that are not part of the cut.
    """

    progress: Progress | None
    offsets: Mapping[Partition, int]
    topic_ids: Mapping[str, str]
    caught_up_at: float
    read_since: Mapping[str, float]


class CutStanding(NamedTuple):
    """How the tables stand at a cut.

    Attributes:
        is_true: at the cut's LSN, tables that are part of it hold what the source held; else the sink catches up.
        loading: topics that do not hold their whole table.
        outside: topics that are not part of the cut.
        joining: topics that are part of it from this one on.
        caught_up_at: as in ``Restored``.
    """

    is_true: bool
    loading: Collection[str]
    outside: Collection[str]
    joining: Collection[str]
    caught_up_at: float


Beginning: TypeAlias = Literal["joined", "behind", "anew", "stopped"]
"""How a topic's table takes rows in a session: part of every cut; reading on towards its end; from the first offset on;
not at all."""


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

    def lock(self) -> bool:
        """Become the only sink of this name, until ``close``; False while another session is."""

    def close(self) -> None:
        """Let the session go; what is open in it is rolled back."""

    def restore(self) -> Restored:
        """The recorded cut and next offsets; nothing at the first start."""

    def learn(self, schemas: Sequence[TableSchema]) -> Collection[str]:
        """Take notice of relation definitions in the order in which they were used: create or widen replica tables.

        A table that cannot be mirrored is stopped, the others go on. Returns the topics that begin anew: the rows of
        their tables are gone.
        """

    def begin(
        self,
        topic: str,
        topic_id: str,
        *,
        ends: Sequence[int],
        resumes: bool,
        why_anew: str,
        is_asked: bool,
        now: float,
    ) -> Beginning:
        """Take up a topic after ``learn``: before its first record is read.

        Args:
            topic: its name.
            topic_id: of the topic that is there now.
            ends: of its partitions, now.
            resumes: offsets of it are stored.
            why_anew: why they must not be used; empty when they may.
            is_asked: the operator wants the table rebuilt, whatever it holds.
            now: seconds since 1970.
        """

    def leave_cut(self, topic: str) -> None:
        """Write down that the topic, part of the last cut, is not part of the next one."""

    def know(self, topic: str, topic_id: str) -> None:
        """Of a topic that no table mirrors: which one it is that offsets are stored of."""

    def stop_topic(self, topic: str, reason: str) -> None:
        """Write down that a table takes no rows, and why. Inside an open transaction it is part of it."""

    def tables(self) -> Mapping[str, ReplicaTable]:
        """Every known replica table by topic."""

    def active(self) -> Collection[str]:
        """Topics whose tables take rows."""

    def may_return(self) -> bool:
        """Whether another session would take up a table that is left out because of somebody's lock. Asks nobody."""

    def meet_source(self, source: SourceIdentity) -> None:
        """From now on, refuse to mirror a table of the source into itself. Call it before ``learn``."""

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> Rows:
        """The last record of each key, in the database's form.

        Raises:
            TableRejected: a record has no form that the table takes.
        """

    def write(self, batches: Sequence[Rows]) -> None:
        """Apply rows in the open replica transaction.

        Raises:
            TableRejected: the database rejects a record.
            TableHeld: a table's lock is somebody's for longer than a moment; nothing of the open transaction is left.
            ReplicaUnavailable: nothing of the open transaction is left.
        """

    def commit(self, progress: Progress, offsets: Mapping[Partition, int], standing: CutStanding) -> None:
        """Record the cut and the offsets to go on from, and commit.

        Raises:
            TableRejected: rows that were taken one by one break a constraint together.
            TableHeld: as for ``write``.
            ReplicaUnavailable: nothing of the open transaction is left, or its outcome is unknown.
        """

    def stop_table(self, topic: str, reason: str, record: StoredRecord | None) -> None:
        """Roll back what is open; write down that a table is stopped, and why: by which record, where it is one."""


class ReplicaPlace(Protocol):
    """Where a replica is kept, as far as the loop that fills it needs to know."""

    @property
    def called(self) -> str:
        """For people: the replica, or what else it is."""

    def upgrade(self) -> None:
        """Make what the writer itself keeps there, or bring it to the version that this program needs."""

    def watching(self, on_failure: Callable[[], None]) -> AbstractContextManager[None]:
        """While the block lasts, see for whom writers wait, and tell.

        Args:
            on_failure: called should a defect end that; the block's end then raises it.
        """

    def writer(self, stopped: Collection[str] = ()) -> ReplicaWriter[Any]:
        """A new session; to be closed.

        Args:
            stopped: topics that this process has stopped already.
        """
