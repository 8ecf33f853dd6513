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
        backfill: the backfill that the chunk belongs to.
        piece: the blocks of the chunk.
        chunk: what the server is asked for.
        guard: transactions that the snapshot must see.
        portion_rows: the most rows in one portion.
    """

    backfill: TableBackfill
    piece: Piece
    chunk: Chunk
    guard: frozenset[int]
    portion_rows: int

    @classmethod
    def of(cls, backfill: TableBackfill, piece: Piece) -> ChunkTask:
        """Returns the task to read this piece."""
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
    """Rows to look up by their keys, for a part of a repair. ``guard`` is that of ``ChunkTask``."""

    part: RepairPart
    table: TableInfo
    keys: tuple[bytes, ...]
    guard: frozenset[int]


class Portion(NamedTuple):
    """Some rows of a chunk, in COPY's text format. ``view`` is None when the heap is gone."""

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
    """A task that cannot be done until somebody changes something."""

    task: Task
    error: CdcError


Task: TypeAlias = ChunkTask | ViewTask | KeysTask
News: TypeAlias = Portion | Viewed | KeysRead | ReadFailure


class Readers(Protocol):
    """Reads tables, in threads of its own."""

    @property
    def count(self) -> int:
        """How many tasks are read at once."""

    @property
    def waits_for(self) -> str:
        """Why a reader cannot go on at the moment, for people to read; empty when all readers can."""

    @property
    def locked(self) -> Mapping[str, str]:
        """Who locks a table that readers wait for, by table, for people to read."""

    def submit(self, task: Task) -> None:
        """Have a task done."""

    def take(self) -> News | None:
        """Returns what was read next; None when there is nothing at the moment."""

    def close(self) -> None:
        """End the threads."""
