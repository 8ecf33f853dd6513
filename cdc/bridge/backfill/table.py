"""One table's backfill, as the publishing thread sees it: its record, the phase it is in, and what is left of it.

    WAITING ──▶ LOOKING ──▶ READING ──▶ CONFIRMING ──▶ CONFIRMED ──▶ SWEEPING ──▶ OVER
                   ▲          │  ▲           │             │                        ▲
                   └──────────┘  └───────────┘             └────────────────────────┘
                 a heap was      partitions were           nothing is to be swept
                 rewritten       attached

From every phase it may be over at once: it failed, or somebody cancelled it, paused it or began it anew. What is over
stays over. Another ``TableBackfill`` takes its place when the table is to go on, and what the readers still bring for
this one is thrown away.
"""

from __future__ import annotations

import enum
import time
from dataclasses import replace
from typing import Final

from cdc.base.lsn import LSN
from cdc.bridge.backfill.pieces import Piece, Pieces
from cdc.bridge.backfill.plan import CHUNK_BLOCKS, is_done, with_done
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Ghosts
from cdc.bridge.capture.chunk import ChunkedTable
from cdc.bridge.order.touched import Recording
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Relation
from cdc.contract.record import BackfillProgress, BackfillState, LeafProgress
from cdc.contract.snapshot import Snapshot

_PRUNE_KEYS: Final = 50_000
_PORTION_ROWS: Final = 1_000
_RATED_CHUNK_S: Final = 1.0
"""With a rate, a chunk is small enough to be read in about this time: whoever wants to alter the table waits for it."""

_LOST_AFTER_S: Final = 1.0
"""How much unused time a table with a rate may make up for."""


class Phase(enum.Enum):
    """Where a table's backfill is. The stored state is coarser: all phases from LOOKING to SWEEPING are ``running``."""

    WAITING = "for its turn; of the last session it may have been under way"
    LOOKING = "a reader looks which heaps hold the table's rows"
    READING = "readers bring chunks of them"
    CONFIRMING = "everything was read; a reader looks whether partitions were attached meanwhile"
    CONFIRMED = "none were"
    SWEEPING = "keys that the topic has and the table has not get tombstones"
    OVER = "nothing is left to be done: done, failed, cancelled, paused, or another took its place"


class TableBackfill:
    """A table, from when it is asked for, or a session begins, until it is over.

    While it is under way it records which keys the stream touches.

    Args:
        progress: as stored, or new.
        stream: of the session.

    Attributes:
        progress: as it is now; what is stored may be behind.
        phase: see ``Phase``.
        is_dirty: ``progress`` changed since it was stored.
        sweep_behind: a sweep may begin when the stream has come to here; None until that was asked for.
    """

    def __init__(self, progress: BackfillProgress, stream: StreamSide) -> None:
        self.progress = progress
        self.phase = Phase.WAITING if progress.state in ("waiting", "running") else Phase.OVER
        self.is_dirty = False
        self.sweep_behind: LSN | None = None
        self._stream = stream
        self._table: TableInfo | None = None
        self._recording: Recording | None = None
        self._view: ChunkedTable | None = None
        self._ghosts: Ghosts | None = None
        self._pieces = Pieces()
        self._due_s = 0.0

    @property
    def name(self) -> str:
        """``namespace.table``."""
        return self.progress.table

    @property
    def topic(self) -> str:
        """The state topic."""
        return self.progress.topic

    @property
    def is_looked_at(self) -> bool:
        """Whether a reader looks at the table as a whole."""
        return self.phase in (Phase.LOOKING, Phase.CONFIRMING)

    @property
    def is_read(self) -> bool:
        """Whether every block was read and published, and that is still to be confirmed."""
        is_all_done = self.phase is Phase.READING and all(map(is_done, self.progress.leaves))
        return is_all_done and not self._pieces

    @property
    def is_ahead_of_its_rate(self) -> bool:
        """Whether it has to wait, so that no more than ``rate`` rows a second are published."""
        return self.progress.rate is not None and time.monotonic() < self._due_s

    @property
    def needs_offsets(self) -> bool:
        """Whether it has to be told where its topic ends before it begins: what lies below may be swept."""
        return self.progress.sweep and not self.progress.below

    @property
    def table(self) -> TableInfo:
        """As the catalog had it when this was begun."""
        assert self._table is not None
        return self._table

    @property
    def recording(self) -> Recording:
        """Of the keys that the stream touches, while it is under way."""
        assert self._recording is not None
        return self._recording

    @property
    def ghosts(self) -> Ghosts:
        """What is swept, while it is."""
        assert self._ghosts is not None
        return self._ghosts

    @property
    def described(self) -> tuple[Relation, str]:
        """The table as it was looked at last, and the snapshot of that."""
        assert self._view is not None
        assert self._view.relation is not None
        return self._view.relation, self._view.snapshot_text

    # From phase to phase.

    def begin(self, table: TableInfo, below: tuple[int, ...]) -> None:
        """Begin, or go on behind what is done; a reader looks at the table next.

        Args:
            table: as the catalog has it now.
            below: see ``BackfillProgress``.
        """
        assert self.phase is Phase.WAITING
        self.phase = Phase.LOOKING
        self._table = table
        self._recording = self._stream.watch(self.topic)
        self._due_s = time.monotonic()
        self._note(replace(self.progress, state="running", reason="", below=below))

    def looked_at(self, view: ChunkedTable) -> None:
        """Take the heaps as they are now: what is done of one stays done unless it was rewritten or is gone."""
        known = {(leaf.namespace, leaf.name, leaf.filenode): leaf for leaf in self.progress.leaves}
        leaves = tuple(
            known.get((heap.namespace, heap.name, heap.filenode))
            or LeafProgress(heap.namespace, heap.name, heap.filenode, heap.blocks)
            for heap in view.heaps
        )
        is_confirmed = self.phase is Phase.CONFIRMING and all(map(is_done, leaves))
        self.phase = Phase.CONFIRMED if is_confirmed else Phase.READING
        self._pieces.planned()
        self._view = view
        self._note(replace(self.progress, leaves=leaves, estimated_rows=view.estimated_rows))

    def look(self) -> None:
        """A reader looks at the table: it was begun, a heap was rewritten, or everything that was known is read."""
        self.phase = Phase.CONFIRMING if self.is_read else Phase.LOOKING

    def sweep(self, ghosts: Ghosts) -> None:
        """From here on keys are recorded anew: what the stream touches behind the sweep's back is no ghost."""
        assert self.phase is Phase.CONFIRMED
        self.phase = Phase.SWEEPING
        self._recording = self._stream.watch_anew(self.recording)
        self._ghosts = ghosts

    def finish(self) -> None:
        """It is done: without a condition every row of the table is in the topic."""
        self._note(replace(self.progress, whole=self.progress.whole or self.progress.where is None))
        self._end("done", "")

    def fail(self, reason: str) -> None:
        """It cannot go on; ``reason`` is for people."""
        self._end("failed", reason)

    def give_up(self) -> None:
        """Another takes its place; the record stays as it is."""
        self.phase = Phase.OVER
        if self._ghosts is not None:
            self._ghosts.close()
        if self._recording is not None:
            self._stream.forget(self._recording)
        self._recording = self._ghosts = self._view = None  # there may be thousands of tables

    def _end(self, state: BackfillState, reason: str) -> None:
        self.give_up()
        self._note(replace(self.progress, state=state, reason=reason))

    # Chunks.

    @property
    def portion_rows(self) -> int:
        """At most so many rows are published at once."""
        rate = self.progress.rate
        return _PORTION_ROWS if rate is None else max(1, min(rate // 5, _PORTION_ROWS))

    def next_piece(self, newest: Snapshot | None) -> Piece | None:
        """The next blocks for a reader; None when all are done or under way.

        Args:
            newest: the newest snapshot that is known by now.
        """
        if self.phase is not Phase.READING:
            return None
        return self._pieces.next(self.progress.leaves, self._chunk_blocks(), newest)

    def give_back(self, piece: Piece) -> None:
        """It is not under way any more."""
        self._pieces.give_back(piece)

    def finished(self, piece: Piece) -> None:
        """It was published whole."""
        self.give_back(piece)
        leaves = self.progress.leaves
        done = (with_done(each, piece.blocks) if piece.is_of(each) else each for each in leaves)
        self._note(replace(self.progress, leaves=tuple(done)))

    def prune(self) -> None:
        """Forget recorded keys that every snapshot under way sees touched. A sweep has none: it needs all keys."""
        if self.phase is not Phase.SWEEPING and len(self.recording.keys) > _PRUNE_KEYS:
            self.recording.prune(self._pieces.floors())

    def _chunk_blocks(self) -> int:
        rate = self.progress.rate
        if rate is None:
            return CHUNK_BLOCKS
        blocks = sum(leaf.blocks for leaf in self.progress.leaves)
        rows_per_block = max(self.progress.estimated_rows / max(blocks, 1), 1.0)
        return max(1, min(int(rate * _RATED_CHUNK_S / rows_per_block), CHUNK_BLOCKS))

    # The record.

    def published(self, rows: int, seq: int) -> None:
        """Rows went out, the last of them with the ordinal ``seq``."""
        if self.progress.rate is not None:
            # Or a table that waited for others would rush afterwards
            self._due_s = max(self._due_s, time.monotonic() - _LOST_AFTER_S) + rows / self.progress.rate
        self._note(replace(self.progress, rows=self.progress.rows + rows, seq=seq))

    def swept(self, keys: int, seq: int) -> None:
        """Tombstones went out, the last of them with the ordinal ``seq``."""
        self._note(replace(self.progress, swept=self.progress.swept + keys, seq=seq))

    def waits_for(self, reason: str) -> None:
        """Why nothing comes at the moment; empty when something does."""
        if self.progress.reason != reason:
            self._note(replace(self.progress, reason=reason))

    def stored(self, lsn: LSN) -> BackfillProgress:
        """The record as it is stored now, where the stream is at ``lsn``."""
        self.progress = replace(self.progress, lsn=lsn, updated_at=now_us())
        self.is_dirty = False
        return self.progress

    def _note(self, progress: BackfillProgress) -> None:
        self.progress = progress
        self.is_dirty = True


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000
