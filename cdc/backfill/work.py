"""The backfill beside the stream: what the publishing thread does between two reads of the stream.

Theory of operation (why it is right: ``touched``). For each table that is under way the order engine notes every
key that the stream touches. Reading threads bring chunks in portions. A portion waits until the stream has published
everything before its snapshot's H; then the rows that are still the newest are published as ``op=r``, between two
source transactions, and a chunk's completion stands in the same Kafka transaction as its last rows. A crash therefore
repeats at most the chunks that were under way.

Backfill records carry as ``lsn`` the last byte before the position up to which the stream is published. So they belong
to every cut from that position on, and (lsn, seq) never falls within a partition.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from cdc.backfill.job import Asked, BackfillJob, new_progress, not_captured, now_us
from cdc.backfill.readers import ChunkReaders, ChunkTask, KeysTask, Portion, ReadFailure, Viewed, ViewTask
from cdc.backfill.records import Records
from cdc.backfill.requests import RequestBox
from cdc.backfill.rows import Ordinals, RowWriter
from cdc.backfill.surroundings import Streamed, Surroundings
from cdc.backfill.sweep import Sweep, SweepGate
from cdc.backfill.turns import Aside
from cdc.contract.backfill import backfill_key, backfill_value, request_key
from cdc.crashpoints import reach
from cdc.errors import CdcError, SourceRefused
from cdc.lsn import LSN
from cdc.order.demand import Demand
from cdc.order.touched import TouchedKeys
from cdc.record import BackfillCommand, BackfillOptions, BackfillProgress, BackfillRequest
from cdc.snapshot import Snapshot
from cdc.source.table import TableInfo

_PRUNE_KEYS: Final = 50_000
_FLUSH_INTERVAL_S: Final = 1.0
_HELD_S: Final = 0.2
"""How long a portion waits for a stream that brings nothing, before the source is asked to write out its WAL."""

log = structlog.get_logger("cdc.backfill")


class Backfill:
    """All backfills of one session.

    Args:
        stored: by table, as the last session left them.
        readers: running.
        requests: what people ask.
        touched: the order engine's.
        streamed: the order engine.
        ordinals: of backfilled records.
        progress_topic: where the records go.
        around: see ``Surroundings``.
    """

    def __init__(
        self,
        stored: Mapping[str, BackfillProgress],
        readers: ChunkReaders,
        requests: RequestBox,
        touched: TouchedKeys,
        streamed: Streamed,
        ordinals: Ordinals,
        progress_topic: str,
        around: Surroundings,
    ) -> None:
        self._records = Records(stored)
        self._readers = readers
        self._requests = requests
        self._touched = touched
        self._streamed = streamed
        self._progress_topic = progress_topic
        self._around = around
        self._jobs: dict[str, BackfillJob] = {}
        self._unwritten: set[str] = set()
        self._head: Portion | None = None
        self._aside = Aside()
        self._newest: Snapshot | None = None
        self._sweep: tuple[BackfillJob, Sweep] | None = None
        self._rows = RowWriter(streamed, ordinals, around.encoder, around.produce)
        self._under_way = 0
        self._flushed_s = 0.0
        self._held_since = 0.0
        self._gate = SweepGate(around.wal_end)

    @property
    def is_active(self) -> bool:
        """Whether there is something to do now; a paused table is not."""
        return bool(self._jobs) or self._records.are_to_be_read

    def add(self, table: TableInfo, topic: str, asked: Asked) -> None:
        """Take a table up, from its beginning: what was under way for it is given up.

        Args:
            table: as the catalog has it.
            topic: its state topic.
            asked: why, and how.
        """
        name = table.qualified_name
        self._drop_job(name)
        self._write(new_progress(table, topic, asked, self._records.get(name), self._streamed.complete_lsn))

    def demand(self, demand: Demand) -> None:
        """Take up what the bridge itself asks for; on record with the next Kafka commit, whatever that holds."""
        if found := self._around.tables().get(demand.table):
            log.info("backfill needed", table=demand.table, reason=demand.reason)
            self.add(*found, Asked("gap", BackfillOptions(sweep=demand.sweep)))
        else:
            self._leave(demand.table)

    def _leave(self, name: str) -> None:
        """The table is not captured any more; one that has no record is published anyway when it joins."""
        self._drop_job(name)
        if name in self._records:
            self._write(not_captured(self._records[name]))

    def attend(self) -> None:
        """Take up what was asked for since the last call."""
        now = time.monotonic()
        if self._held_since and now - self._held_since > _HELD_S:
            self._held_since = now
            self._around.flush_wal()
        for job in self._jobs.values():
            job.waits_for(self._readers.waits_for)
        for request in self._requests.take():
            self._obey(request)
            self._around.produce(self._progress_topic, request_key(request.request), None, b"")

    def _obey(self, request: BackfillRequest) -> None:
        """Do what a person asks; tables that are not in scope are left out, with a warning."""
        in_scope = self._around.tables()
        for name in request.tables or in_scope:
            if name not in in_scope:
                log.warning("a backfill was asked for a table that is not captured", table=name)
            elif request.command == "start":
                self.add(*in_scope[name], Asked("request", request.options, request.request))
            elif (progress := self._records.get(name)) is not None and progress.is_open:
                self._change(progress, request.command)
        log.info("backfill request", command=request.command, tables=list(request.tables) or "all")

    def step(self) -> int:
        """Publish a portion, if one is due. Only between source transactions.

        Returns:
            Bytes of values and keys that were produced.

        Raises:
            CdcError: the session ends.
        """
        self._feed()
        if self._sweep is not None:
            return self._sweep_on(*self._sweep)
        self._head = head = self._head or self._aside.take() or self._take()
        if head is None:
            self._finish_what_is_read()
            return 0
        job = self._job_of(head.task)
        if job is None:
            return self._done_with(head, None)
        view = head.view
        if view is None or view.filenode != head.task.leaf.filenode:
            log.info("the table was rewritten; reading it anew", table=job.table.qualified_name)
            job.give_back(head.task)
            self._look_at(job)
            return self._done_with(head, None)
        if view.lsn > self._streamed.settled_lsn:
            self._held_since = self._held_since or time.monotonic()
            return 0
        if not self._rows.is_ready(view.relation):
            if job.table.qualified_name not in self._around.tables():
                self._leave(job.table.qualified_name)
            return 0
        self._newest = view.snapshot
        published = self._rows.publish(job, head)
        self._done_with(head, job)
        if head.is_last:
            self._finish_what_is_read()  # a small table need not wait until nothing of the others is left to publish
        return published

    def flush(self, lsn: LSN) -> None:
        """Write every record that changed, into the Kafka transaction that is about to be committed."""
        for name, job in list(self._jobs.items()):
            if job.is_dirty:
                job.is_dirty = False
                self._records[name] = job.progress
                self._unwritten.add(name)
            if not job.progress.is_open:
                del self._jobs[name]
        for name in self._unwritten:
            self._records[name] = record = replace(self._records[name], lsn=lsn, updated_at=now_us())
            if name in self._jobs:
                self._jobs[name].progress = record
            self._around.produce(self._progress_topic, backfill_key(name), backfill_value(record), b"")
            self._around.report(record)
        self._unwritten.clear()
        self._flushed_s = time.monotonic()

    @property
    def wants_flush(self) -> bool:
        """Whether a record waits to be written: at once when a state changed, else once a second."""
        if self._unwritten or any(not job.progress.is_open for job in self._jobs.values()):
            return True
        is_due = time.monotonic() - self._flushed_s > _FLUSH_INTERVAL_S
        return is_due and any(job.is_dirty for job in self._jobs.values())

    def close(self) -> None:
        """End the threads."""
        self._readers.close()
        self._requests.close()
        if self._sweep is not None:
            self._sweep[1].close()

    def _take(self) -> Portion | None:
        """The next portion from the readers, if its table may go on; other news of theirs are dealt with."""
        taken = self._readers.take()
        if taken is None:
            return None
        if isinstance(taken, Portion):
            return None if self._aside.keeps(taken) else taken
        job = self._job_of(taken.task)
        if isinstance(taken.task, ChunkTask):
            self._under_way -= 1
        if job is not None and isinstance(taken, ReadFailure):
            self._fail(job, taken.error)
        elif job is not None and isinstance(taken, Viewed):
            job.plan(taken.view)
            if taken.view.relation is None:
                self._fail(job, SourceRefused("the table is gone"))
        return None

    def _job_of(self, task: ChunkTask | ViewTask | KeysTask) -> BackfillJob | None:
        """Whose task it was; None when that was given up or failed meanwhile."""
        owner = task.owner
        if not isinstance(owner, BackfillJob) or self._jobs.get(owner.progress.table) is not owner:
            return None
        return owner if owner.progress.is_open else None

    def _look_at(self, job: BackfillJob) -> None:
        job.view = None
        self._readers.submit(ViewTask(job, job.table, job.progress.where))

    def _feed(self) -> None:
        """Keep every reader busy: chunks of the tables under way first, then the next table."""
        while self._under_way + sum(job.view is None for job in self._jobs.values()) < 2 * self._readers.count:
            task = next(filter(None, map(self._next_task, self._jobs.values())), None)
            if task is not None:
                self._under_way += 1
                self._readers.submit(task)
            elif not self._begin_next():
                break
        for job in self._jobs.values():
            is_swept = self._sweep is not None and self._sweep[0] is job
            if len(job.recording.keys) > _PRUNE_KEYS and not is_swept:
                job.recording.prune(job.floors() or ())

    def _next_task(self, job: BackfillJob) -> ChunkTask | None:
        if job.progress.state != "running" or job.is_ahead_of_its_rate or self._aside.holds(job):
            return None
        return job.next_task(self._newest)

    def _begin_next(self) -> bool:
        """Begin the next table that may begin, of those that were begun before first; False when there is none."""
        for progress in self._records.to_be_read():
            if progress.table not in self._jobs and self._may_begin(progress):
                if found := self._around.tables().get(progress.table):
                    self._begin(found[0], progress)
                else:
                    self._leave(progress.table)
                return True
        return False

    def _may_begin(self, progress: BackfillProgress) -> bool:
        """Tables with a rate come one after another; a sweep waits until the stream has come to where it was asked."""
        if progress.rate is not None and any(job.progress.rate is not None for job in self._jobs.values()):
            return False
        if not progress.sweep or progress.below:
            return True
        if self._streamed.holds_records or not self._gate.opens(progress, self._streamed.complete_lsn):
            self._held_since = self._held_since or time.monotonic()
            return False
        self._held_since = 0.0
        self._around.commit()
        return True

    def _begin(self, table: TableInfo, progress: BackfillProgress) -> None:
        """Offsets first, then recording, then the first chunk: nothing may fall between them."""
        if progress.sweep and not progress.below:
            progress = replace(progress, below=self._around.end_offsets(progress.topic))
        recording = self._touched.watch(progress.topic, self._streamed.unseen)
        self._streamed.watch_keys()
        job = BackfillJob(table, progress, recording)
        self._jobs[table.qualified_name] = job
        job.change("running")
        self._look_at(job)
        log.info("backfill", table=table.qualified_name, cause=progress.cause, resumed=bool(progress.rows))

    def _done_with(self, portion: Portion, job: BackfillJob | None) -> int:
        self._head = None
        self._held_since = 0.0
        if portion.is_last:
            self._under_way -= 1
            if job is not None:
                reach("backfill.before_chunk_done")
                job.finished(portion.task)
        return 0

    def _finish_what_is_read(self) -> None:
        """Not while something is held: a row that was left to the stream may not be in the topic yet."""
        if self._streamed.holds_records:
            return
        for job in list(self._jobs.values()):
            if job.progress.state != "running" or not job.is_read:
                continue
            if not job.is_confirmed:
                # Partitions that were attached meanwhile brought rows of which the stream says nothing
                job.is_confirmed = True
                self._look_at(job)
            elif job.progress.sweep and job.progress.where is None:
                self._begin_sweep(job)
                return
            else:
                self._finish(job)

    def _begin_sweep(self, job: BackfillJob) -> None:
        """From here on keys are noted anew: what the stream touches behind the sweep's back is no ghost."""
        self._around.commit()
        self._touched.forget(job.recording)
        job.recording = self._touched.watch(job.topic, ())
        assert job.view is not None
        assert job.view.relation is not None
        self._rows.describe_ghosts(job.view.relation, job.view.snapshot_text)
        self._sweep = (job, self._around.sweep(job.topic, job.progress.below))

    def _sweep_on(self, job: BackfillJob, sweep: Sweep) -> int:
        """Tombstones for some of the keys that the table does not have."""
        keys = sweep.take()
        if job.progress.state != "running":
            sweep.close()
            self._sweep = None
            return 0
        if keys is None:
            self._sweep = None
            self._finish(job)
            return 0
        return self._rows.publish_ghosts(job, keys)

    def _finish(self, job: BackfillJob) -> None:
        whole = job.progress.whole or job.progress.where is None
        job.progress = replace(job.progress, whole=whole)
        job.change("done")
        self._end(job)
        log.info("backfill done", table=job.progress.table, rows=job.progress.rows, swept=job.progress.swept)

    def _fail(self, job: BackfillJob, error: CdcError) -> None:
        if job.progress.is_open:
            job.change("failed", str(error))
            self._end(job)
            log.error("backfill failed", table=job.progress.table, error=error.message, remedy=error.remedy or None)

    def _end(self, job: BackfillJob) -> None:
        self._touched.forget(job.recording)
        self._streamed.watch_keys()

    def _change(self, progress: BackfillProgress, command: BackfillCommand) -> None:
        job = self._jobs.get(progress.table)
        if command == "cancel":
            self._drop_job(progress.table)
            self._write(replace(job.progress if job else progress, state="cancelled"))
        elif command == "pause" and progress.state != "paused":
            self._drop_job(progress.table)
            self._write(replace(job.progress if job else progress, state="paused"))
        elif command == "resume" and progress.state == "paused":
            self._write(replace(progress, state="waiting"))

    def _drop_job(self, name: str) -> None:
        """Chunks under way are read to their end and thrown away."""
        job = self._jobs.pop(name, None)
        if job is not None:
            if self._sweep is not None and self._sweep[0] is job:
                self._sweep[1].close()
                self._sweep = None
            self._records[name] = job.progress
            self._end(job)

    def _write(self, progress: BackfillProgress) -> None:
        self._records[progress.table] = progress
        self._unwritten.add(progress.table)
