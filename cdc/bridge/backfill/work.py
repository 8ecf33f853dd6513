"""The backfill beside the stream: what the publishing thread does between two reads of the stream.

Theory of operation (``touched`` says why it is right). For each table that is under way, the order engine notes every
key that the stream touches. Reading threads bring chunks in portions. A portion waits until the stream has published
everything before its snapshot's H. Then the rows that are still the newest are published as ``op=r``, between two
source transactions. A chunk's completion is written in the same Kafka transaction as its last rows, so a crash repeats
at most the chunks that were under way.

The ``lsn`` of backfill records is the last byte before the position up to which the stream is published. So they belong
to every cut from that position on, and (lsn, seq) never falls within a partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from cdc.base.crashpoints import reach
from cdc.base.errors import CdcError, SourceRefused
from cdc.base.lsn import LSN
from cdc.bridge.backfill.intake import BackfillOrder, Intake
from cdc.bridge.backfill.ledger import Ledger
from cdc.bridge.backfill.rows import BackfillRowWriter
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Requests, Surroundings
from cdc.bridge.backfill.table import Phase, TableBackfill
from cdc.bridge.backfill.tasks import ChunkTask, Portion, Readers, ReadFailure, Viewed, ViewTask
from cdc.bridge.backfill.turns import Aside, Gate
from cdc.bridge.backfill.wal_wait import WalWait
from cdc.bridge.capture.chunk import ChunkedTable, ChunkView
from cdc.bridge.order.demand import Demand
from cdc.bridge.source.table import TableInfo
from cdc.contract.record import BackfillProgress
from cdc.contract.snapshot import Snapshot

log = structlog.get_logger("cdc.backfill")


class Backfill:
    """Does all backfills of one session.

    Args:
        stored: the records by table, as the last session left them.
        readers: the threads that read, already running.
        requests: what people request.
        stream: tells where the stream is, and which keys it touches.
        rows: produces the records.
        around: what backfills need from the bridge.
    """

    def __init__(
        self,
        stored: Mapping[str, BackfillProgress],
        readers: Readers,
        requests: Requests,
        stream: StreamSide,
        rows: BackfillRowWriter,
        around: Surroundings,
    ) -> None:
        self._ledger = Ledger(stored, stream, around)
        self._intake = Intake(self._ledger, requests, stream, around)
        self._readers = readers
        self._stream = stream
        self._rows = rows
        self._around = around
        self._aside = Aside(self._has_to_wait)
        self._wait = WalWait(around)
        self._gate = Gate(self._ledger, stream, around, self._wait)
        self._head: Portion | None = None
        self._newest: Snapshot | None = None
        self._chunks_under_way: Counter[str] = Counter()
        self._has_told_of_sink = False

    @property
    def is_active(self) -> bool:
        """Whether there is something to do now; a paused table does not count."""
        return self._ledger.is_active

    @property
    def wants_flush(self) -> bool:
        """Whether a record waits to be written."""
        return self._ledger.wants_flush

    def flush(self, lsn: LSN) -> None:
        """Write every changed record into the Kafka transaction that is about to be committed."""
        self._ledger.flush(lsn)

    def add(self, table: TableInfo, topic: str, asked: BackfillOrder) -> None:
        """Take a table up from its beginning, and give up what is under way for it."""
        self._intake.add(table, topic, asked)

    def demand(self, demand: Demand) -> None:
        """Take up a demand of the bridge itself. It is recorded with the next Kafka commit, whatever that holds."""
        self._intake.demand(demand)

    def begin_anew(self, demand: Demand, topic: str) -> int:
        """Take up the backfill of a table whose topic is emptied first. Returns the ordinal of the tombstones.

        They get the position that backfilled rows get, and an earlier backfill may have written some there already.
        """
        self.demand(demand)
        ordinal = self._rows.next_ordinal(topic)
        if (backfill := self._ledger.find(demand.table)) is not None:
            # On record before the tombstones: after a restart, the ordinals of rows have to follow theirs
            self._ledger.put(replace(backfill.progress, seq=ordinal))
        return ordinal

    def attend(self) -> None:
        """Take up what was asked for since the last call."""
        self._wait.attend()
        for backfill in self._ledger.under_way:
            backfill.waits_for(self._readers.locked.get(backfill.name) or self._readers.waits_for)
        self._intake.attend()

    def close(self) -> None:
        """End the threads."""
        self._readers.close()
        self._intake.close()
        for backfill in self._ledger.under_way:
            backfill.give_up()

    def step(self, commit: Callable[[], None]) -> int:
        """Publish a portion, if one is due. Call it only between source transactions.

        Args:
            commit: commits the Kafka transaction, into which ``flush`` writes; called when a table that is to be swept
                begins, and before its sweep.

        Returns:
            The total size of the values and keys that were produced, in bytes.

        Raises:
            CdcError: the session has to end.
        """
        self._feed(commit)
        for backfill in self._ledger.under_way:
            if backfill.phase is Phase.SWEEPING:
                return self._sweep_on(backfill)
        self._head = self._head or self._aside.take() or self._take()
        if self._head is None:
            self._finish_what_is_read(commit)
            return 0
        view = self._due_view(self._head)
        return 0 if view is None else self._publish(self._head, view, commit)

    # What the readers do.

    def _feed(self, commit: Callable[[], None]) -> None:
        """Keep every reader busy, first with chunks of the tables under way, then with the next table."""
        while self._tasks_under_way < 2 * self._readers.count:
            task = next(filter(None, map(self._next_task, self._ledger.under_way)), None)
            if task is not None:
                self._chunks_under_way[task.backfill.name] += 1
                self._readers.submit(task)
            elif not self._begin_next(commit):
                break
        for backfill in self._ledger.under_way:
            backfill.prune()

    @property
    def _tasks_under_way(self) -> int:
        """Tasks under way, except for locked tables: a lock may last for hours, and other tables need not wait."""
        locked = self._readers.locked
        looks = sum(each.is_looked_at for each in self._ledger.under_way if each.name not in locked)
        return looks + sum(count for name, count in self._chunks_under_way.items() if name not in locked)

    def _next_task(self, backfill: TableBackfill) -> ChunkTask | None:
        if backfill.name in self._readers.locked or self._has_to_wait(backfill) or self._aside.holds(backfill):
            return None
        piece = backfill.next_piece(self._newest)
        return None if piece is None else ChunkTask.of(backfill, piece)

    def _has_to_wait(self, backfill: TableBackfill) -> bool:
        """Whether no more of a table is to be published at the moment, for its own rate or that of the sink.

        A replica of a table that is not whole yet is not exact anyway: the sink leaves it out of its cuts if it must.
        """
        if backfill.is_ahead_of_its_rate:
            return True
        if not backfill.progress.whole or not self._around.is_sink_overtaken(backfill.topic):
            return False
        if not self._has_told_of_sink:
            self._has_told_of_sink = True
            log.info(
                "a backfill goes no faster than the sink, or rows of the stream would reach the replica late",
                table=backfill.name,
            )
        return True

    def _look_at(self, backfill: TableBackfill) -> None:
        backfill.look()
        self._readers.submit(ViewTask(backfill, backfill.table, backfill.progress.where))

    def _take(self) -> Portion | None:
        """Returns the next portion from the readers, if its table may go on. Deals with their other news."""
        match self._readers.take():
            case Portion() as portion:
                return None if self._aside.keeps(portion) else portion
            case Viewed(task, view):
                self._looked_at(task.backfill, view)
            case ReadFailure(ChunkTask() as task, error):
                self._chunks_under_way[task.backfill.name] -= 1
                self._fail(task.backfill, error)
            case ReadFailure(ViewTask() as task, error):
                self._fail(task.backfill, error)
        return None

    def _looked_at(self, backfill: TableBackfill, view: ChunkedTable) -> None:
        if backfill.phase is not Phase.OVER:
            backfill.looked_at(view)
            if view.relation is None:
                self._fail(
                    backfill,
                    SourceRefused(
                        "the table is gone",
                        remedy="take it out of source.tables if it is gone for good; if you make it again, the bridge "
                        "publishes it",
                    ),
                )

    def _fail(self, backfill: TableBackfill, error: CdcError) -> None:
        if backfill.phase is not Phase.OVER:
            backfill.fail(str(error))
            log.error("backfill failed", table=backfill.name, error=error.message, remedy=error.remedy)

    # Beginnings.

    def _begin_next(self, commit: Callable[[], None]) -> bool:
        """Begin the next table that may begin; tables that were begun before come first. False when there is none."""
        for backfill in self._ledger.waiting:
            if self._gate.opens(backfill):
                if found := self._around.tables().get(backfill.name):
                    self._begin(backfill, found[0], commit)
                else:
                    self._intake.leave(backfill.name)
                return True
        return False

    def _begin(self, backfill: TableBackfill, table: TableInfo, commit: Callable[[], None]) -> None:
        """Begin a table: first the offsets, then the recording, then the first chunk, or changes would be missed."""
        below = backfill.progress.below
        if backfill.needs_offsets:
            commit()
            below = self._around.end_offsets(backfill.topic)
        backfill.begin(table, below)
        self._ledger.began(backfill)
        self._look_at(backfill)
        progress = backfill.progress
        log.info("backfill", table=progress.table, cause=progress.cause, resumed=bool(progress.rows))

    # Rows.

    def _due_view(self, head: Portion) -> ChunkView | None:
        """Returns what a portion was read in if its rows may be published now; None if they must wait or be dropped."""
        backfill, view = head.task.backfill, head.view
        if backfill.phase is Phase.OVER:
            self._let_go(head)
            return None
        if view is None or view.filenode != head.task.piece.leaf.filenode:
            log.info("the table was rewritten; reading it anew", table=backfill.name)
            backfill.give_back(head.task.piece)
            if not backfill.is_looked_at:
                self._look_at(backfill)
            self._let_go(head)
            return None
        if view.lsn > self._stream.settled_lsn:
            self._wait.begin()
            return None
        if not self._rows.is_ready(view.relation):
            if backfill.name not in self._around.tables():
                self._intake.leave(backfill.name)
            return None
        return view

    def _publish(self, head: Portion, view: ChunkView, commit: Callable[[], None]) -> int:
        self._newest = view.snapshot
        published = self._rows.publish(head.task.backfill, head.lines, view)
        self._around.sink_gets(len(head.lines))
        self._let_go(head)
        if head.is_last:
            reach("backfill.before_chunk_done")
            head.task.backfill.finished(head.task.piece)
            self._finish_what_is_read(commit)  # a small table need not wait until the other tables are read
        return published

    def _let_go(self, head: Portion) -> None:
        """Drop a portion that was published, or is not wanted."""
        self._head = None
        self._wait.end()
        if head.is_last:
            self._chunks_under_way[head.task.backfill.name] -= 1

    # Ends.

    def _finish_what_is_read(self, commit: Callable[[], None]) -> None:
        """End tables that are read. Waits while rows are held: a row left to the stream may not be in the topic yet."""
        if self._stream.holds_records:
            return
        for backfill in self._ledger.under_way:
            if backfill.is_read:
                self._look_at(backfill)
            elif backfill.phase is Phase.CONFIRMED:
                if backfill.progress.sweep and backfill.progress.where is None:
                    self._begin_sweep(backfill, commit)
                    return
                self._finish(backfill)

    def _begin_sweep(self, backfill: TableBackfill, commit: Callable[[], None]) -> None:
        commit()  # the sweep reads what is committed, so the backfill's own rows have to be
        self._rows.describe_ghosts(*backfill.described)
        backfill.sweep(self._around.ghosts(backfill.topic, backfill.progress.below))

    def _sweep_on(self, backfill: TableBackfill) -> int:
        """Publish tombstones for some of the keys that the table does not have."""
        keys = backfill.ghosts.take()
        if keys is None:
            self._finish(backfill)
            return 0
        return self._rows.publish_ghosts(backfill, keys)

    def _finish(self, backfill: TableBackfill) -> None:
        backfill.finish()
        progress = backfill.progress
        log.info("backfill done", table=progress.table, rows=progress.rows, swept=progress.swept)
