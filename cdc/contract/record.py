"""What Kafka will hold: keyed records (upserts, or tombstones when the value is None) and positions in the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from cdc.base.lsn import LSN
from cdc.base.table_names import qualified

Ready: TypeAlias = tuple[str, bytes, bytes | None, bytes, bytes | None]
"""Topic, key, value, header; and for the topic's history, if it has one, what the stream says of the row before.

Value None is the tombstone, and only a real null deletes: ``b""`` and ``b"null"`` are live values. The header is the
bytes of the one header ``cdc``.
"""


class Position(NamedTuple):
    """A change in the stream: its transaction's commit LSN (``final_lsn`` of Begin), and its ordinal there, from 1."""

    lsn: LSN
    seq: int


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which database a stream came from; a change of any part means that stored positions say nothing."""

    system_identifier: str
    timeline: int
    database_oid: int


class Lead(NamedTuple):
    """How far rows may be ahead of the progress, with ``delivery: idempotent``.

    Attributes:
        sent: no row beyond this commit LSN was sent when the record was made.
        is_open: rows without a Kafka transaction may follow before the next progress does, so the topics may hold rows
            that no progress covers; False behind a clean end, and with ``delivery: transactional``.
    """

    sent: LSN
    is_open: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the stream is published, written in the Kafka transaction that carries the rows it covers, or behind it.

    Attributes:
        lsn: everything that committed before this position is published.
        partial: of the transaction that comes next, the first ``seq`` changes are published too; None when complete.
        commit_ts: commit time of the newest published transaction, µs since 1970; 0 when unknown.
        source: where the stream comes from.
        unseen: 64-bit ids of published transactions that a snapshot of the source may not see yet, for a commit is in
            the WAL before it is visible. A backfill must not read older rows than theirs. Most are seen long since.
        lead: None as long as every row that was ever published came in a Kafka transaction with its progress.
    """

    lsn: LSN
    partial: Position | None
    commit_ts: int
    source: SourceIdentity
    unseen: tuple[int, ...] = ()
    lead: Lead | None = None


BackfillState: TypeAlias = Literal["waiting", "running", "paused", "done", "cancelled", "failed"]
BackfillCause: TypeAlias = Literal["initial", "gap", "request"]
BackfillCommand: TypeAlias = Literal["start", "pause", "resume", "cancel"]


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """How tables are to be published again; without any, all rows, as fast as possible.

    Attributes:
        where: SQL condition that restricts the rows, None for all.
        rate: rows a second at most, None for as fast as possible.
        sweep: delete keys from the topic that the table does not have.
    """

    where: str | None = None
    rate: int | None = None
    sweep: bool = False


@dataclass(frozen=True, slots=True)
class LeafProgress:
    """How much of one heap (an ordinary table, or a partition that holds rows) a backfill has published.

    Attributes:
        filenode: ``pg_relation_filenode`` when it was planned; another one means that the rows moved without a word.
        blocks: its length then; the last range is open, so that rows behind it are read as well.
        done: block ranges that are published, half open, sorted, adjacent ones merged.
    """

    namespace: str
    name: str
    filenode: int
    blocks: int
    done: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """How far the backfill of one table is, written in the Kafka transaction that carries its rows.

    Attributes:
        table: ``namespace.table``.
        topic: its state topic.
        request: who asked for it: an id, the same for all tables of one request.
        cause: ``initial`` for rows from before the first start, ``gap`` after lost changes, ``request`` by a person.
        whole: the topic holds every row of the table; False while the first backfill, or one after a gap, goes on.
        where, rate, sweep: see ``BackfillOptions``.
        below: with ``sweep``, by partition: keys whose latest record lies below this offset in the end are deleted.
        leaves: the heaps that are read; empty before they were looked at.
        estimated_rows: as the catalog counts them.
        rows: published so far.
        swept: tombstones written by the sweep so far.
        seq: ordinal of its last record, so that (lsn, seq) never falls after a restart.
        lsn: where the stream stood when this was written; of a finished one: from here on the topic is complete.
        started_at: µs since 1970.
        updated_at: µs since 1970.
        reason: why it failed or what it waits for; empty otherwise.
    """

    table: str
    topic: str
    request: str
    state: BackfillState
    cause: BackfillCause
    whole: bool
    where: str | None
    rate: int | None
    sweep: bool
    below: tuple[int, ...]
    leaves: tuple[LeafProgress, ...]
    estimated_rows: int
    rows: int
    swept: int
    seq: int
    lsn: LSN
    started_at: int
    updated_at: int
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Whether there is work left."""
        return self.state in ("waiting", "running", "paused")


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What a person asks of the running bridge, written to the progress topic.

    Attributes:
        request: id.
        command: ``pause``, ``resume`` and ``cancel`` change what is under way.
        tables: ``namespace.table``; empty for all.
        where, rate, sweep: see ``BackfillOptions``; for ``start`` only.
    """

    request: str
    command: BackfillCommand
    tables: tuple[str, ...] = ()
    where: str | None = None
    rate: int | None = None
    sweep: bool = False

    @property
    def options(self) -> BackfillOptions:
        """What ``start`` asks for. A condition rules a sweep out: who reads some rows cannot tell which are gone."""
        return BackfillOptions(self.where, self.rate, self.sweep and self.where is None)


class RepairKey(NamedTuple):
    """A key of a topic that differs from its table.

    Attributes:
        key: its bytes exactly as they are in the topic, or, of a row that the topic lacks, as they should be there.
        partition: where a record of it was seen that does not belong there; None when none was.
    """

    key: bytes
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """One part of what somebody asks the running bridge to publish again, written to the progress topic.

    Attributes:
        request: id, the same for all parts.
        part: its number, from 0.
        table: ``namespace.table``.
        keys: of bounded number and size.
    """

    request: str
    part: int
    table: str
    keys: tuple[RepairKey, ...]


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """What became of one part of a request; of each table the newest is kept.

    Attributes:
        table: ``namespace.table``.
        topic: its state topic; empty when the bridge knows no such table.
        request: see ``RepairRequest``.
        part: see ``RepairRequest``.
        rows: that were published again.
        tombstones: that were written.
        touched: keys that the stream published meanwhile by itself.
        seq: ordinal of the last record of a backfill or repair of the topic, so that (lsn, seq) never falls.
        lsn: from here on the topic has what was repaired.
        error: why nothing was done, for people; empty when it was.
        remedy: what mends that.
    """

    table: str
    topic: str
    request: str
    part: int
    rows: int
    tombstones: int
    touched: int
    seq: int
    lsn: LSN
    error: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """One column of a ``TableSchema``: ``sql_type`` is a complete SQL type, e.g. ``numeric(12,2)``, ``text[]``.

    With another ``number`` it is another column of that name, see ``contract.key_identity``.

    Attributes:
        number: the column's ``attnum`` in the source, 0 when unknown. Of a key column: since the topic began.
        type_oid: the type's oid in the source; of a domain its own. 0 when unknown.
        labels: of a key column: of each value of an enum in its type the oid, and a hash of its label.
    """

    name: str
    sql_type: str
    number: int = 0
    type_oid: int = 0
    labels: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A relation definition as ``__schemas`` keeps it, found by ``fingerprint`` (16 hex digits).

    ``key`` holds the key columns' names in key order. ``relation_id`` is the table's oid in the source, 0 when unknown:
    another one under the same name is another table, whose rows have nothing to do with those before.
    """

    fingerprint: str
    namespace: str
    name: str
    topic: str
    key: tuple[str, ...]
    columns: tuple[SchemaColumn, ...]
    relation_id: int = 0

    @property
    def qualified_name(self) -> str:
        """``namespace.name``, as ``table_names`` spells it."""
        return qualified(self.namespace, self.name)
