"""What the publishing thread asks of the readers, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

from cdc.base.errors import CdcError
from cdc.bridge.backfill.pieces import Piece
from cdc.bridge.backfill.plan import OPEN
from cdc.bridge.backfill.repair_part import RepairPart
from cdc.bridge.backfill.table import TableBackfill
from cdc.bridge.capture.chunk import Chunk, ChunkedTable, ChunkView
from cdc.bridge.capture.key_rows import KeyRows
from cdc.bridge.source.table import TableInfo


class ChunkTask(NamedTuple):
    """A chunk to read.

    Attributes:
        backfill: whose chunk it is.
        piece: of its heaps.
        chunk: the same for the server.
        guard: transactions that the snapshot must see.
        portion_rows: at most so many rows in one portion.
    """

    backfill: TableBackfill
    piece: Piece
    chunk: Chunk
    guard: frozenset[int]
    portion_rows: int

    @classmethod
    def of(cls, backfill: TableBackfill, piece: Piece) -> ChunkTask:
        """To read this piece."""
        leaf, (start, end) = piece
        last = None if end >= OPEN else end
        chunk = Chunk(backfill.table, leaf.namespace, leaf.name, start, last, backfill.progress.where)
        return cls(backfill, piece, chunk, backfill.recording.guard, backfill.portion_rows)


class ViewTask(NamedTuple):
    """A table to look at as a whole."""

    backfill: TableBackfill
    table: TableInfo
    where: str | None


class KeysTask(NamedTuple):
    """Rows to look up by their keys, for a part of a repair; ``guard`` as in ``ChunkTask``."""

    part: RepairPart
    table: TableInfo
    keys: tuple[bytes, ...]
    guard: frozenset[int]


class Portion(NamedTuple):
    """Some rows of a chunk, in COPY's text format; ``view`` None when the heap is gone."""

    task: ChunkTask
    view: ChunkView | None
    lines: list[bytes]
    is_last: bool


class Viewed(NamedTuple):
    """A table that was looked at."""

    task: ViewTask
    view: ChunkedTable


class KeysRead(NamedTuple):
    """What the table has for some keys."""

    task: KeysTask
    found: KeyRows


class ReadFailure(NamedTuple):
    """Something that cannot be read until somebody changes something."""

    task: Task
    error: CdcError


Task: TypeAlias = ChunkTask | ViewTask | KeysTask
News: TypeAlias = Portion | Viewed | KeysRead | ReadFailure


class Readers(Protocol):
    """What reads tables, on threads of its own."""

    @property
    def count(self) -> int:
        """How many read at once."""

    @property
    def waits_for(self) -> str:
        """Why a reader cannot go on at the moment, for people; empty when all can."""

    @property
    def locked(self) -> Mapping[str, str]:
        """By table, who keeps readers from it by a lock, for people."""

    def submit(self, task: Task) -> None:
        """Have something read, or looked at."""

    def take(self) -> News | None:
        """What was read next; None when there is nothing at the moment."""

    def close(self) -> None:
        """End the threads."""
