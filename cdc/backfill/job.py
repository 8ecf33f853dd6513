"""One table's backfill, as the publishing thread sees it: its record, its open chunks, what is left."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Final, NamedTuple

from cdc.backfill.plan import CHUNK_BLOCKS, Blocks, is_done, remaining, with_done
from cdc.backfill.readers import ChunkTask
from cdc.capture.chunk import Chunk, TableView
from cdc.lsn import LSN
from cdc.order.touched import Recording
from cdc.record import BackfillCause, BackfillOptions, BackfillProgress, BackfillState, LeafProgress
from cdc.snapshot import Snapshot
from cdc.source.table import TableInfo

_PORTION_ROWS: Final = 1_000
_RATED_CHUNK_S: Final = 1.0
"""With a rate, a chunk is small enough to be read in about this time: whoever wants to alter the table waits for it."""

_LOST_AFTER_S: Final = 1.0
"""How much unused time a table with a rate may make up for."""

NOT_CAPTURED: Final = "the table is not captured any more"


def not_captured(progress: BackfillProgress) -> BackfillProgress:
    """The record of a table whose changes are not published from here on: when it comes back, it is loaded anew."""
    return replace(progress, state="failed", whole=False, reason=NOT_CAPTURED)


class Asked(NamedTuple):
    """Why a table is published again, and how; without ``request``, which is a person's, it gets an id of its own."""

    cause: BackfillCause
    options: BackfillOptions = BackfillOptions()
    request: str = ""


class BackfillJob:
    """A table under way.

    Args:
        table: as the catalog has it now.
        progress: as stored, or new.
        recording: of the keys that the stream touches.
    """

    def __init__(self, table: TableInfo, progress: BackfillProgress, recording: Recording) -> None:
        self.table = table
        self.progress = progress
        self.recording = recording
        self.is_dirty = True
        self.view: TableView | None = None
        """The table as it was looked at last; None until then."""
        self.is_confirmed = False
        """Whether it was looked at once more after its last chunk."""
        self._taken: dict[tuple[str, str], dict[Blocks, Snapshot | None]] = {}
        self._first_open = 0
        self._due_s = time.monotonic()

    @property
    def topic(self) -> str:
        """The state topic."""
        return self.progress.topic

    @property
    def chunks_under_way(self) -> int:
        """Chunks given to the readers and not finished."""
        return sum(map(len, self._taken.values()))

    @property
    def is_read(self) -> bool:
        """Whether every block was read and published."""
        return self.view is not None and all(map(is_done, self.progress.leaves)) and not self.chunks_under_way

    @property
    def is_ahead_of_its_rate(self) -> bool:
        """Whether it has to wait, so that no more than ``rate`` rows a second are published."""
        return self.progress.rate is not None and time.monotonic() < self._due_s

    def change(self, state: BackfillState, reason: str = "") -> None:
        """Move on to another state."""
        self.progress = replace(self.progress, state=state, reason=reason)
        self.is_dirty = True

    def waits_for(self, reason: str) -> None:
        """Why nothing comes at the moment; empty when something does."""
        if self.progress.state == "running" and self.progress.reason != reason:
            self.change("running", reason)

    def plan(self, view: TableView) -> None:
        """Take the heaps as they are now: what is done of one stays done unless it was rewritten or is gone."""
        known = {(leaf.namespace, leaf.name, leaf.filenode): leaf for leaf in self.progress.leaves}
        leaves = tuple(
            known.get((heap.namespace, heap.name, heap.filenode))
            or LeafProgress(heap.namespace, heap.name, heap.filenode, heap.blocks)
            for heap in view.heaps
        )
        self.is_confirmed = self.is_confirmed and all(map(is_done, leaves))
        self._first_open = 0
        self.view = view
        self.progress = replace(self.progress, leaves=leaves, estimated_rows=view.estimated_rows)
        self.is_dirty = True

    def floors(self) -> list[Snapshot] | None:
        """For each chunk under way a snapshot that its own is not older than; None when one has none."""
        known = [each for taken in self._taken.values() for each in taken.values()]
        floors = [each for each in known if each is not None]
        return floors if len(floors) == len(known) else None

    def next_task(self, newest: Snapshot | None) -> ChunkTask | None:
        """The next chunk for a reader; None when all are done or under way.

        Args:
            newest: the newest snapshot that is known by now.
        """
        if self.view is None:
            return None
        size, portion_rows = self._sizes()
        leaves = self.progress.leaves
        for place in range(self._first_open, len(leaves)):
            leaf, self._first_open = leaves[place], place
            taken = self._taken.setdefault((leaf.namespace, leaf.name), {})
            for blocks in remaining(leaf, taken, size):
                taken[blocks] = newest
                end = None if blocks.end >= 2**32 else blocks.end
                chunk = Chunk(self.table, leaf.namespace, leaf.name, blocks.start, end, self.progress.where)
                return ChunkTask(self, leaf, blocks, chunk, self.recording.guard, portion_rows)
        return None

    def published(self, rows: int, seq: int) -> None:
        """Rows went out."""
        if self.progress.rate is not None:
            # Or a table that waited for others would rush afterwards
            self._due_s = max(self._due_s, time.monotonic() - _LOST_AFTER_S) + rows / self.progress.rate
        self.progress = replace(self.progress, rows=self.progress.rows + rows, seq=seq)
        self.is_dirty = True

    def swept(self, keys: int, seq: int) -> None:
        """Tombstones went out."""
        self.progress = replace(self.progress, swept=self.progress.swept + keys, seq=seq)
        self.is_dirty = True

    def finished(self, task: ChunkTask) -> None:
        """A chunk was published whole."""
        self.give_back(task)
        leaves = tuple(
            with_done(leaf, task.blocks) if _is_same(leaf, task.leaf) else leaf for leaf in self.progress.leaves
        )
        self.progress = replace(self.progress, leaves=leaves)
        self.is_dirty = True

    def give_back(self, task: ChunkTask) -> None:
        """A chunk is not under way any more."""
        self._taken.get((task.leaf.namespace, task.leaf.name), {}).pop(task.blocks, None)

    def _sizes(self) -> tuple[int, int]:
        rate, blocks = self.progress.rate, sum(leaf.blocks for leaf in self.progress.leaves)
        if rate is None:
            return CHUNK_BLOCKS, _PORTION_ROWS
        rows_per_block = max(self.progress.estimated_rows / max(blocks, 1), 1.0)
        size = int(rate * _RATED_CHUNK_S / rows_per_block)
        return max(1, min(size, CHUNK_BLOCKS)), max(1, min(rate // 5, _PORTION_ROWS))


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000


def new_progress(
    table: TableInfo, topic: str, asked: Asked, before: BackfillProgress | None, lsn: LSN
) -> BackfillProgress:
    """The record of a backfill that was just asked for.

    Args:
        table: as the catalog has it.
        topic: its state topic.
        asked: by whom, and what.
        before: the record of the one before, if any.
        lsn: where the stream stands.
    """
    options = asked.options
    now = now_us()
    return BackfillProgress(
        table=table.qualified_name,
        topic=topic,
        request=asked.request or uuid.uuid4().hex,
        state="waiting",
        cause=asked.cause,
        # What a person asks for does not make the topic lack anything
        whole=asked.cause == "request" and (before is None or before.whole),
        where=options.where,
        rate=options.rate,
        sweep=options.sweep,
        below=(),
        leaves=(),
        estimated_rows=table.estimated_rows,
        rows=0,
        swept=0,
        # Only ever grows, so that (lsn, seq) does when two backfills follow one another on a database at rest
        seq=before.seq if before is not None else 0,
        lsn=lsn,
        started_at=now,
        updated_at=now,
    )


def _is_same(one: LeafProgress, other: LeafProgress) -> bool:
    return (one.namespace, one.name, one.filenode) == (other.namespace, other.name, other.filenode)
