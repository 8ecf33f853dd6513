"""What Kafka will hold: keyed records (upserts, or tombstones when the value is None) and positions in the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cdc.lsn import LSN


class Record(NamedTuple):
    """One record of a topic, before it is produced or after it was read.

    ``value`` None is the tombstone, and only a real null deletes: ``b""`` and ``b"null"`` are live values.
    ``header`` is the bytes of the one header ``cdc``.
    """

    topic: str
    key: bytes
    value: bytes | None
    header: bytes


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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the stream is published, written in the Kafka transaction that carries the rows it covers.

    Attributes:
        lsn: everything that committed before this position is published.
        partial: of the transaction that comes next, the first ``seq`` changes are published too; None when complete.
        commit_ts: commit time of the newest published transaction, µs since 1970; 0 when unknown.
        source: where the stream comes from.
    """

    lsn: LSN
    partial: Position | None
    commit_ts: int
    source: SourceIdentity


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """One column of a ``TableSchema``: ``sql_type`` is a complete SQL type, e.g. ``numeric(12,2)``, ``text[]``."""

    name: str
    sql_type: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A relation definition as ``__schemas`` keeps it, found by ``fingerprint`` (16 hex digits).

    ``key`` holds the key columns' names in key order.
    """

    fingerprint: str
    namespace: str
    name: str
    topic: str
    key: tuple[str, ...]
    columns: tuple[SchemaColumn, ...]
