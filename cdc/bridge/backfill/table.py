"""One table's backfill, as the publishing thread sees it: its record, its phase, and what is left to do.

    WAITING ──▶ LOOKING ──▶ READING ──▶ CONFIRMING ──▶ CONFIRMED ──▶ SWEEPING ──▶ OVER
                   ▲          │  ▲           │             │                        ▲
                   └──────────┘  └───────────┘             └────────────────────────┘
                 a heap was      partitions were           nothing is to be swept
                 rewritten       attached

A backfill may end in every phase: it failed, or somebody cancelled it, paused it or began it anew. When it is over, it
stays over. If the table is to go on, another ``TableBackfill`` takes its place, and what the readers still bring for
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

PRUNE_KEYS: Final = 50_000
"""Fewer recorded keys are not worth a pass over them: they take less than 9 MB."""
_PORTION_ROWS: Final = 1_000
_RATED_CHUNK_S: Final = 1.0
"""The time that a chunk with a rate takes, about. Whoever wants to alter the table waits for the chunk."""

_LOST_AFTER_S: Final = 1.0
"""How much unused time a table with a rate may make up for."""


class Phase(enum.Enum):
    """The phase of a table's backfill. The stored state is coarser: LOOKING to SWEEPING are all ``running``."""

    WAITING = "it waits for its turn; the last session may have begun it"
    LOOKING = "a reader finds the heaps that hold the table's rows"
    READING = "readers bring chunks of these heaps"
    CONFIRMING = "everything was read; a reader checks whether partitions were attached meanwhile"
    CONFIRMED = "no partition was attached"
    SWEEPING = "keys that are in the topic and not in the table get tombstones"
    OVER = "nothing is left to be done: it is done, failed, cancelled or paused, or another one took its place"


class TableBackfill:
    """A table's backfill in one session, from the request or the session's beginning until it is over.

    While it is under way, it records which keys the stream touches.

    Args:
        progress: the record, as stored or new.
        stream: the session's side of the stream.

    Attributes:
        progress: the record as it is now; the stored one may be older.
        phase: where the backfill is.
        is_dirty: ``progress`` changed since it was stored.
        sweeps_after: the LSN after which a sweep may begin, once the stream is there; None until it was asked for.
    """

    def __init__(self, progress: BackfillProgress, stream: StreamSide) -> None:
        self.progress = progress
        self.phase = Phase.WAITING if progress.state in ("waiting", "running") else Phase.OVER
        self.is_dirty = False
        self.sweeps_after: LSN | None = None
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
        """Whether a reader is looking at the table as a whole."""
        return self.phase in (Phase.LOOKING, Phase.CONFIRMING)

    @property
    def is_read(self) -> bool:
        """Whether every block was read and published, but that is not confirmed yet."""
        is_all_done = self.phase is Phase.READING and all(map(is_done, self.progress.leaves))
        return is_all_done and not self._pieces

    @property
    def is_ahead_of_its_rate(self) -> bool:
        """Whether the table has to wait, so that no more than ``rate`` rows a second are published."""
        return self.progress.rate is not None and time.monotonic() < self._due_s

    @property
    def needs_offsets(self) -> bool:
        """Whether the ends of its topic must be known before it begins: the sweep looks below them."""
        return self.progress.sweep and not self.progress.below

    @property
    def table(self) -> TableInfo:
        """The table, as the catalog had it when the backfill was begun."""
        assert self._table is not None
        return self._table

    @property
    def recording(self) -> Recording:
        """The recording of the keys that the stream touches while the backfill is under way."""
        assert self._recording is not None
        return self._recording

    @property
    def ghosts(self) -> Ghosts:
        """The keys to be swept, during a sweep."""
        assert self._ghosts is not None
        return self._ghosts

    @property
    def described(self) -> tuple[Relation, str]:
        """The table as it was last looked at, and the snapshot of that."""
        assert self._view is not None
        assert self._view.relation is not None
        return self._view.relation, self._view.snapshot_text

    # From phase to phase.

    def begin(self, table: TableInfo, below: tuple[int, ...]) -> None:
        """Begin, or go on after what is done. A reader looks at the table next.

        Args:
            table: the table, as the catalog has it now.
            below: the ends of the topic's partitions, as in ``BackfillProgress``.
        """
        assert self.phase is Phase.WAITING
        self.phase = Phase.LOOKING
        self._table = table
        self._recording = self._stream.watch(self.topic)
        self._due_s = time.monotonic()
        self._note(replace(self.progress, state="running", reason="", below=below))

    def looked_at(self, view: ChunkedTable) -> None:
        """Take the heaps as they are now. What is done of a heap stays done, unless it was rewritten or is gone."""
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
        """Note that a reader looks at the table: after the beginning, a rewrite, or the last of the known blocks."""
        self.phase = Phase.CONFIRMING if self.is_read else Phase.LOOKING

    def sweep(self, ghosts: Ghosts) -> None:
        """Begin to sweep, with a new recording: a key that the stream touches during the sweep is not a ghost."""
        assert self.phase is Phase.CONFIRMED
        self.phase = Phase.SWEEPING
        self._recording = self._stream.watch_anew(self.recording)
        self._ghosts = ghosts

    def finish(self) -> None:
        """End the backfill as done. Without a condition, every row of the table is in the topic now."""
        self._note(replace(self.progress, whole=self.progress.whole or self.progress.where is None))
        self._end("done", "")

    def fail(self, reason: str) -> None:
        """End the backfill as failed; ``reason`` is for people to read."""
        self._end("failed", reason)

    def give_up(self) -> None:
        """Give way to another backfill of the table; the record stays as it is."""
        self.phase = Phase.OVER
        if self._ghosts is not None:
            self._ghosts.close()
        if self._recording is not None:
            self._stream.forget(self._recording)
        self._recording = self._ghosts = self._view = None  # they take memory, and there may be thousands of tables

    def _end(self, state: BackfillState, reason: str) -> None:
        self.give_up()
        self._note(replace(self.progress, state=state, reason=reason))

    # Chunks.

    @property
    def portion_rows(self) -> int:
        """The most rows that are published at once."""
        rate = self.progress.rate
        return _PORTION_ROWS if rate is None else max(1, min(rate // 5, _PORTION_ROWS))

    def next_piece(self, newest: Snapshot | None) -> Piece | None:
        """Returns the next blocks for a reader; None when all are done or under way.

        Args:
            newest: the newest snapshot that is known so far.
        """
        if self.phase is not Phase.READING:
            return None
        return self._pieces.next(self.progress.leaves, self._chunk_blocks(), newest)

    def give_back(self, piece: Piece) -> None:
        """Note that a piece is not under way any more."""
        self._pieces.give_back(piece)

    def finished(self, piece: Piece) -> None:
        """Note that a piece was published to its end."""
        self.give_back(piece)
        leaves = self.progress.leaves
        done = (with_done(each, piece.blocks) if piece.is_of(each) else each for each in leaves)
        self._note(replace(self.progress, leaves=tuple(done)))

    def prune(self) -> None:
        """Forget recorded keys that every snapshot under way sees. A sweep has no snapshot, so it keeps all keys."""
        if self.phase is not Phase.SWEEPING and len(self.recording.keys) > PRUNE_KEYS:
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
        """Note that rows went out, the last of them with the ordinal ``seq``."""
        if self.progress.rate is not None:
            # Unused time expires: a table that had to wait for others must not rush afterwards
            self._due_s = max(self._due_s, time.monotonic() - _LOST_AFTER_S) + rows / self.progress.rate
        self._note(replace(self.progress, rows=self.progress.rows + rows, seq=seq))

    def swept(self, keys: int, seq: int) -> None:
        """Note that tombstones went out, the last of them with the ordinal ``seq``."""
        self._note(replace(self.progress, swept=self.progress.swept + keys, seq=seq))

    def waits_for(self, reason: str) -> None:
        """Note why nothing comes at the moment; an empty reason means that something does."""
        if self.progress.reason != reason:
            self._note(replace(self.progress, reason=reason))

    def stored(self, lsn: LSN) -> BackfillProgress:
        """Returns the record to be stored now, with the stream at ``lsn``."""
        self.progress = replace(self.progress, lsn=lsn, updated_at=now_us())
        self.is_dirty = False
        return self.progress

    def _note(self, progress: BackfillProgress) -> None:
        self.progress = progress
        self.is_dirty = True


def now_us() -> int:
    """Returns the microseconds since 1970."""
    return time.time_ns() // 1_000
