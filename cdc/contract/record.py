"""What Kafka will hold: keyed records (upserts, or tombstones if the value is None), and positions in the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from cdc.base.lsn import LSN
from cdc.base.table_names import qualified


class EventParts(NamedTuple):
    """What an event, of an outbox or of a message, has beside topic, key, value and the header ``cdc``.

    Attributes:
        spread_by: what decides the partition if the event has no key.
        has_key: whether the event has a key; without one, the record's key is null.
        headers: further headers, in order.
    """

    spread_by: bytes
    has_key: bool
    headers: tuple[tuple[str, bytes], ...]


Ready: TypeAlias = tuple[str, bytes, bytes | None, bytes, bytes | EventParts | None]
"""A record that is ready to send: topic, key, value and header; and, for the topic's history if it has one, what the
stream says about the row before. An event has its other parts in that place.

The value None makes a tombstone. Only a real null deletes: ``b""`` and ``b"null"`` are live values. The header is the
value of the one header ``cdc``.
"""


class Position(NamedTuple):
    """A change's position: its transaction's commit LSN (``final_lsn`` of Begin), and its ordinal there, from 1."""

    lsn: LSN
    seq: int


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The database that a stream comes from; if any part changes, stored positions mean nothing."""

    system_identifier: str
    timeline: int
    database_oid: int


class Lead(NamedTuple):
    """How far rows may be ahead of the progress, with ``delivery: idempotent``.

    Attributes:
        sent: when the record was made, no row beyond this commit LSN had been sent.
        is_open: whether rows may be sent before the next progress is written, so that the topics may hold rows that no
            progress covers. False after a clean end, and with ``delivery: transactional``.
    """

    sent: LSN
    is_open: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the stream is published. Its record is in the Kafka transaction of the rows that it covers, or after it.

    Attributes:
        lsn: everything that committed before this position is published.
        partial: the first ``seq`` changes of the next transaction are published as well; None if none are.
        commit_ts: commit time of the newest published transaction, µs since 1970; 0 when unknown.
        source: where the stream comes from.
        unseen: 64-bit ids of published transactions that a snapshot of the source may not see yet, because a commit is
            in the WAL before it is visible. A backfill must not read rows older than theirs. Most of them have been
            visible for long.
        lead: None as long as every row was published in a Kafka transaction together with its progress.
        messages: of the transaction of ``partial``, so many logical messages were taken as well. They are not counted
            as changes, so that the ordinals of changes do not depend on whether messages are read.
        quarantined: tables with rows in quarantine, by their qualified names, and how many keys of each. The topics
            lack these rows.
    """

    lsn: LSN
    partial: Position | None
    commit_ts: int
    source: SourceIdentity
    unseen: tuple[int, ...] = ()
    lead: Lead | None = None
    messages: int = 0
    quarantined: tuple[tuple[str, int], ...] = ()


BackfillState: TypeAlias = Literal["waiting", "running", "paused", "done", "cancelled", "failed"]
BackfillCause: TypeAlias = Literal["initial", "gap", "request"]
BackfillCommand: TypeAlias = Literal["start", "pause", "resume", "cancel"]


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """How tables are published again; by default all rows, as fast as possible.

    Attributes:
        where: SQL condition that restricts the rows, None for all rows.
        rate: greatest number of rows a second, None for no limit.
        sweep: whether to delete keys from the topic that the table does not have.
    """

    where: str | None = None
    rate: int | None = None
    sweep: bool = False


@dataclass(frozen=True, slots=True)
class LeafProgress:
    """How much of one heap (an ordinary table, or a partition that holds rows) a backfill has published.

    Attributes:
        filenode: ``pg_relation_filenode`` when the backfill was planned; another one now means that the heap was
            rewritten, which the stream does not say.
        blocks: the heap's length then; the last range is open-ended, so that rows past it are read as well.
        done: the published block ranges: half-open, sorted, and adjacent ones merged.
    """

    namespace: str
    name: str
    filenode: int
    blocks: int
    done: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """How far the backfill of one table is; written in the Kafka transaction that carries its rows.

    Attributes:
        table: ``namespace.table``.
        topic: its state topic.
        request: the id of the request, the same for all its tables.
        cause: ``initial`` for rows from before the first start, ``gap`` after lost changes, ``request`` by a person.
        whole: whether the topic holds every row of the table; False during the first backfill, or one after a gap.
        where, rate, sweep: as in ``BackfillOptions``.
        below: with ``sweep``, by partition: in the end, keys whose latest record lies below this offset are deleted.
        leaves: the heaps to read; empty until they are planned.
        estimated_rows: the catalog's estimate.
        rows: number of rows published so far.
        swept: number of tombstones that the sweep has written so far.
        seq: ordinal of the backfill's last record, so that (lsn, seq) never falls after a restart.
        lsn: where the stream stood when this was written; once the backfill is done, the topic is complete from here
            on.
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
        """Whether the backfill has work left."""
        return self.state in ("waiting", "running", "paused")


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """A person's request to the running bridge, written to the progress topic.

    Attributes:
        request: its id.
        command: ``start`` begins a backfill; ``pause``, ``resume`` and ``cancel`` change one that is under way.
        tables: ``namespace.table`` of each; empty for all tables.
        where, rate, sweep: as in ``BackfillOptions``; only for ``start``.
    """

    request: str
    command: BackfillCommand
    tables: tuple[str, ...] = ()
    where: str | None = None
    rate: int | None = None
    sweep: bool = False

    @property
    def options(self) -> BackfillOptions:
        """The options for ``start``. A condition excludes a sweep: reading some rows does not show which are gone."""
        return BackfillOptions(self.where, self.rate, self.sweep and self.where is None)


class RepairKey(NamedTuple):
    """A key of a topic that differs from its table.

    Attributes:
        key: its bytes exactly as they are in the topic or, if the topic lacks the row, as they should be.
        partition: a wrong partition in which a record of the key was seen; None if there was none.
    """

    key: bytes
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """One part of a request to publish keys again, written to the progress topic for the running bridge.

    Attributes:
        request: its id, the same for all parts.
        part: the number of the part, from 0.
        table: ``namespace.table``.
        keys: the keys; their number and size are limited (``contract.repair``).
        gives_up: remove the entries that these keys have in quarantine, and publish nothing.
    """

    request: str
    part: int
    table: str
    keys: tuple[RepairKey, ...]
    gives_up: bool = False


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """The outcome of one part of a request; the progress topic keeps the newest of each table.

    Attributes:
        table: ``namespace.table``.
        topic: its state topic; empty if the bridge knows no such table.
        request: as in ``RepairRequest``.
        part: as in ``RepairRequest``.
        rows: number of rows that were published again.
        tombstones: number of tombstones that were written.
        touched: number of keys that the stream itself published meanwhile.
        seq: ordinal of the last record of a backfill or repair of the topic, so that (lsn, seq) never falls.
        lsn: from here on the topic holds what was repaired.
        error: why nothing was done, for people; empty if it was done.
        remedy: what to do about the error.
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


ColumnForm: TypeAlias = Literal["", "iso", "number", "base64", "string"]
"""How a column's values are written in JSON, if not in the form of the default (``formats.formed.cells``)."""


class ValueForms(NamedTuple):
    """How the values of a table are written in JSON, where that is not the default.

    Attributes:
        columns: the form of each column that has another one.
        is_connects: whether each value contains its schema, as Kafka Connect's JsonConverter reads it.
    """

    columns: Mapping[str, ColumnForm] = MappingProxyType({})
    is_connects: bool = False


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """One column of a ``TableSchema``: ``sql_type`` is a complete SQL type, e.g. ``numeric(12,2)``, ``text[]``.

    If ``number`` differs, it is another column of the same name (``contract.key_identity``).

    Attributes:
        number: the column's ``attnum`` in the source, 0 when unknown. For a key column: when the topic began.
        type_oid: the type's oid in the source, for a domain its own; 0 when unknown.
        labels: oid and hashed label of each value of an enum in the type; only for a key column.
        form: how its values are written; empty for the form that JSON has by default.
    """

    name: str
    sql_type: str
    number: int = 0
    type_oid: int = 0
    labels: tuple[tuple[int, str], ...] = ()
    form: ColumnForm = ""


FormatName: TypeAlias = Literal["json", "avro", "protobuf", "json-schema"]
"""How the values of a topic are written."""

KeyFormat: TypeAlias = Literal["json", "avro"]
"""How the keys of a topic are written, whichever format its values have."""

EnvelopeName: TypeAlias = Literal["plain", "debezium"]
"""What surrounds a row in a value: nothing, or Debezium's change event."""


class WrittenSchema(NamedTuple):
    """A schema of the registry with which values, or keys, were written.

    Attributes:
        schema_id: its id in the registry, which each of them begins with.
        text: the schema.
        format: the format of these values. The topic may have gone on in another one.
    """

    schema_id: int
    text: str
    format: FormatName


class DebeziumModes(NamedTuple):
    """How values in Debezium's envelope are written; the names and values are those of Debezium's own options.

    Attributes:
        decimal: ``decimal.handling.mode``.
        time: ``time.precision.mode``.
        binary: ``binary.handling.mode``.
        hstore: ``hstore.handling.mode``.
        schemas: whether each value contains its schema (``schemas.enable`` of Kafka Connect's converter).
    """

    decimal: Literal["precise", "string"] = "precise"
    time: Literal["adaptive", "adaptive_time_microseconds", "isostring", "microseconds", "nanoseconds"] = "adaptive"
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    hstore: Literal["json", "map"] = "json"
    schemas: bool = False


class RowRule(NamedTuple):
    """The row filter that a publication applies to a table.

    Attributes:
        condition: as PostgreSQL prints it; rows that do not satisfy it are not published.
        entry: the oid of the publication's entry. An entry that was removed and added again may have let other rows
            through for a while.
    """

    condition: str
    entry: int


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A relation definition as ``__schemas`` stores it, found by ``fingerprint`` (16 hex digits).

    ``key`` holds the names of the key columns in key order. ``relation_id`` is the table's oid in the source, 0 when
    unknown: if it differs, it is another table of the same name, whose rows are unrelated to the earlier ones.
    ``written`` holds every schema that values of this definition were written with, so that no reader of ours has to
    ask the registry; the newest comes last. ``envelope`` is None if a value is the row and nothing else;
    ``was_enveloped`` says whether the topic held envelopes before. ``is_connects`` says whether each value contains its
    schema, as Kafka Connect's JsonConverter reads it. ``key_schema`` is None if keys are JSON; the fingerprint depends
    on it, on ``rules``, which says by column what was hidden (``contract.hiding``), and on ``rows``, which says which
    rows were published; None for all.
    """

    fingerprint: str
    namespace: str
    name: str
    topic: str
    key: tuple[str, ...]
    columns: tuple[SchemaColumn, ...]
    relation_id: int = 0
    format: FormatName = "json"
    written: tuple[WrittenSchema, ...] = ()
    envelope: DebeziumModes | None = None
    was_enveloped: bool = False
    is_connects: bool = False
    key_schema: WrittenSchema | None = None
    rules: tuple[tuple[str, str], ...] = ()
    rows: RowRule | None = None

    @property
    def is_formed(self) -> bool:
        """Whether values are rows in JSON, but in another form than JSON has by default."""
        return self.is_connects or any(column.form for column in self.columns)

    @property
    def qualified_name(self) -> str:
        """``namespace.name``, as ``table_names`` spells it."""
        return qualified(self.namespace, self.name)
