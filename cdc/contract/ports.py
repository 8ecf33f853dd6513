"""The Protocols between rooms: what one room needs from another, so that rooms need not import each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from cdc.base.errors import ReplicaRefused, with_remedy
from cdc.contract.record import Progress, SourceIdentity, TableSchema

Partition: TypeAlias = tuple[str, int]
"""A partition: its topic, and its number."""


class StoredRecord(NamedTuple):
    """A record that was read: its place and its contents. ``header`` is ``b""`` when it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    header: bytes


class TableRejected(ReplicaRefused):
    """A replica table does not take rows: it stops, and the other tables go on.

    Attributes:
        topic: the table's topic.
        reason: why, in the replica's words or ours.
        record: the record that caused it, if it is a single one.
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
        """Reason and remedy as an error prints them; this is what is recorded for the table."""
        return with_remedy(self.reason, self.remedy)


class TableHeld(Exception):
    """Somebody's lock keeps rows out of a topic's table; a new session goes on without it until the lock ends."""


class BeginAnew(Exception):
    """Something that the session relies on has changed: start another one from what the replica stores."""


class TopicFacts(NamedTuple):
    """A topic as the brokers describe it now.

    Attributes:
        topic_id: Kafka's own id; a recreated topic has another one.
        low: by partition, the first offset that can be read; deleting records moves it, compaction does not.
        ends: by partition, the high watermark.
        compaction_lag_s: ``min.compaction.lag.ms`` in seconds: younger records do not make the cleaner remove others.
        delete_retention_s: ``delete.retention.ms`` in seconds: how long a tombstone stays after the cleaner met it.
        policy: ``cleanup.policy``; several policies are separated by commas.
    """

    topic_id: str
    low: Sequence[int]
    ends: Sequence[int]
    compaction_lag_s: float
    delete_retention_s: float
    policy: str = "compact"


class RecordReader(Protocol):
    """Reads committed records of assigned partitions; its positions count markers and aborted records as well."""

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Returns the topic's partitions; none when there is no such topic."""

    def look_at(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        """Returns the brokers' facts about topics, now; leaves out topics that do not exist."""

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Returns each topic's id with its partition count; leaves out topics that do not exist."""

    def add(self, starts: Mapping[Partition, int]) -> None:
        """Start to read these partitions as well, from these offsets on."""

    def again(self, starts: Mapping[Partition, int]) -> None:
        """Read partitions again that are already read, from these offsets on."""

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        """Returns up to ``max_records`` committed records; none if none came in time."""

    def positions(self) -> Mapping[Partition, int]:
        """Returns the next offset of each partition."""

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        """Ask the brokers for a fence: once these positions are reached, all that is committed now has been read.

        Args:
            marked: topics in which every record belongs to a Kafka transaction; None for all.
        """

    def hold(self, partitions: Collection[Partition]) -> None:
        """Pause exactly these partitions, until the next call says otherwise; all others are read."""


class ReplicaTable(NamedTuple):
    """A replica table as its readers see it.

    Attributes:
        topic: the topic that it mirrors.
        name: ``schema.table`` in the replica.
        state: one of ``metrics.TABLE_STATES``.
        reason: why it is stopped or rebuilt, else None.
        rows_applied: number of upserts and deletes since it was created.
    """

    topic: str
    name: str
    state: str
    reason: str | None
    rows_applied: int


class Restored(NamedTuple):
    """What a replica has stored for the sink of one name.

    Attributes:
        progress: how far rows are applied.
        offsets: the next offset to read in each partition.
        topic_ids: the ids of the topics to which these offsets belong.
        caught_up_at: a moment, in seconds since 1970, at which the topics held nothing at or beyond ``progress``.
        read_since: the same moment for each topic whose table is not part of the cut.
    """

    progress: Progress | None
    offsets: Mapping[Partition, int]
    topic_ids: Mapping[str, str]
    caught_up_at: float
    read_since: Mapping[str, float]


class CutStanding(NamedTuple):
    """The state of all tables at a cut.

    Attributes:
        is_true: whether the tables of the cut hold what the source held at its LSN; if not, the sink is catching up.
        loading: topics that do not hold their whole table.
        outside: topics that are not part of the cut.
        joining: topics that are part of the cut from this one on.
        caught_up_at: as in ``Restored``.
        lacking: topics whose tables lack rows that are in quarantine.
    """

    is_true: bool
    loading: Collection[str]
    outside: Collection[str]
    joining: Collection[str]
    caught_up_at: float
    lacking: Collection[str] = ()


Beginning: TypeAlias = Literal["joined", "outside", "anew", "stopped"]
"""How a topic's table takes rows in a session: as part of every cut (``joined``), outside the cut until its topic is
read to the end (``outside``), likewise but from the first offset on (``anew``), or not at all (``stopped``)."""


class PreparedRows(Protocol):
    """Rows of one replica table, in the form that the database takes."""

    @property
    def topic(self) -> str:
        """The topic that the rows come from."""

    def __len__(self) -> int:
        """Number of keys that are upserted or deleted."""


Rows = TypeVar("Rows", bound=PreparedRows)


class ReplicaWriter(Protocol[Rows]):
    """Writes to the replica: rows, offsets and the cut's progress in one transaction.

    ``write`` opens that transaction, ``commit`` ends it. All calls except ``prepare`` use one session and must not
    overlap; ``prepare`` only computes and may run at the same time.
    """

    def lock(self) -> bool:
        """Become the only sink of this name until ``close``. Returns False while another session is."""

    def close(self) -> None:
        """End the session; an open transaction is rolled back."""

    def restore(self) -> Restored:
        """Returns the recorded cut and the next offsets; nothing at the first start."""

    def learn(self, schemas: Sequence[TableSchema]) -> Collection[str]:
        """Create or widen replica tables for these relation definitions, given in the order in which they were used.

        A table that cannot be mirrored is stopped; the others go on. Returns the topics that begin anew: the rows of
        their tables are deleted.
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
        """Begin to take rows of a topic: after ``learn``, and before the topic's first record is read.

        Args:
            topic: its name.
            topic_id: the id of the topic that exists now.
            ends: the ends of its partitions now.
            resumes: whether offsets of the topic are stored.
            why_anew: why these offsets must not be used; empty if they may be.
            is_asked: whether the operator wants the table rebuilt, whatever it holds.
            now: seconds since 1970.
        """

    def leave_cut(self, topic: str) -> None:
        """Write down that the topic, part of the last cut, is not part of the next one."""

    def know(self, topic: str, topic_id: str) -> None:
        """Remember the id of a topic that no table mirrors, as the one to which its stored offsets belong."""

    def stop_topic(self, topic: str, reason: str) -> None:
        """Record that a table takes no rows, and why. If a transaction is open, this is part of it."""

    def tables(self) -> Mapping[str, ReplicaTable]:
        """Returns every known replica table by topic."""

    def active(self) -> Collection[str]:
        """Returns the topics whose tables take rows."""

    def may_return(self) -> bool:
        """Whether a new session would take up a table that somebody's lock keeps out. Does not ask the database."""

    def meet_source(self, source: SourceIdentity) -> None:
        """Set the source, so that a table of the source is never mirrored into itself. Call it before ``learn``."""

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> Rows:
        """Returns the last record of each key, in the form that the database takes.

        Raises:
            TableRejected: the table takes no form of a record.
        """

    def write(self, batches: Sequence[Rows]) -> None:
        """Apply rows in the replica transaction; opens it if there is none.

        Raises:
            TableRejected: the database rejects a record.
            BeginAnew: it does, and the next session goes on without that record.
            TableHeld: somebody holds a table's lock for longer than a moment; the transaction was rolled back.
            ReplicaUnavailable: the transaction was rolled back.
        """

    def commit(self, progress: Progress, offsets: Mapping[Partition, int], standing: CutStanding) -> None:
        """Record the cut and the offsets to go on from, and commit.

        Raises:
            TableRejected: rows that were taken one by one together violate a constraint.
            TableHeld: as for ``write``.
            ReplicaUnavailable: the transaction was rolled back, or its outcome is unknown.
        """

    def stop_table(self, topic: str, reason: str, record: StoredRecord | None) -> None:
        """Roll back the open transaction, and record that a table is stopped, why, and by which record, if by one."""


class ReplicaPlace(Protocol):
    """The place where a replica is kept, as far as the loop that fills it needs to know."""

    @property
    def called(self) -> str:
        """What messages call it: the replica, or a view."""

    def upgrade(self) -> None:
        """Create what the writer keeps there for itself, or upgrade it to the version that this program needs."""

    def watching(self, on_failure: Callable[[], None]) -> AbstractContextManager[None]:
        """Watch whom writers wait for while the block lasts, and say so.

        Args:
            on_failure: called if the watching fails; the block then raises the failure at its end.
        """

    def writer(self, stopped: Collection[str] = ()) -> ReplicaWriter[Any]:
        """Open a new session; the caller closes it.

        Args:
            stopped: topics that this process has already stopped.
        """
