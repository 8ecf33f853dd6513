"""Repairs by key, as the publishing thread sees them: parts of requests that a reader looks up, published when due.

The parts of one request share a recording of touched keys. It begins when the first part is taken up, never earlier: a
key that the stream touched before somebody found it to differ may still differ. So requests are done one by one.

A part's records, its outcome and the tombstone of the request are produced in one Kafka transaction. A bridge that dies
before the commit leaves the request in place, and the next bridge does all of it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from cdc.base.crashpoints import reach
from cdc.base.errors import CdcError, SourceRefused, TopicRefused
from cdc.base.lsn import LSN
from cdc.bridge.backfill.repair_part import Repaired, RepairPart
from cdc.bridge.backfill.repair_rows import RepairWriter
from cdc.bridge.backfill.rows import Ordinals
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Surroundings
from cdc.bridge.backfill.tasks import KeysRead, KeysTask, Readers, ReadFailure
from cdc.bridge.backfill.wal_wait import WalWait
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import Recording
from cdc.bridge.source.table import TableInfo
from cdc.contract.header import DELETE, HeaderStamp
from cdc.contract.record import RepairOutcome, RepairRequest
from cdc.contract.repair import repair_key, repair_outcome_value, repair_request_key

_AHEAD: Final = 4
"""How many parts are looked up ahead of the one being published: a reader rarely waits, and their rows need little
memory."""

_PRUNE_KEYS: Final = 50_000
"""Fewer recorded keys are not worth a pass over them: they take less than 9 MB."""

log = structlog.get_logger("cdc.repair")


@dataclass(frozen=True, slots=True)
class _Job:
    """A request under way."""

    request: str
    table: TableInfo
    topic: str
    recording: Recording
    writer: RepairWriter


class Repairs:
    """Does all repairs of one session.

    Args:
        waiting: the parts that were asked for, by their records' keys, in order; taken from here one by one.
        start_reader: called when there is something to read for the first time.
        stream: tells where the stream is, and which keys it touches.
        ordinals: the ordinals of backfilled records.
        around: what repairs need from the bridge.
    """

    def __init__(
        self,
        waiting: dict[bytes, RepairRequest],
        start_reader: Callable[[], Readers],
        stream: StreamSide,
        ordinals: Ordinals,
        around: Surroundings,
    ) -> None:
        self._waiting = waiting
        self._start_reader = start_reader
        self._stream = stream
        self._ordinals = ordinals
        self._around = around
        self._reader: Readers | None = None
        self._job: _Job | None = None
        self._under_way: list[RepairPart] = []
        self._head: KeysRead | None = None
        self._encoder: TableEncoder | None = None
        self._wait = WalWait(around)

    @property
    def is_active(self) -> bool:
        """Whether a repair was asked for or is under way."""
        return bool(self._waiting) or self._job is not None

    def attend(self) -> None:
        """Have the source write out the WAL that a part waits for."""
        self._wait.attend()

    def step(self) -> int:
        """Publish a part, if one is due. Call it only between source transactions.

        Returns:
            How many bytes of values and keys were produced.

        Raises:
            CdcError: the session has to end.
        """
        if not self.is_active:
            return 0
        self._feed()
        if self._head is None:
            self._head = self._take()
        if self._head is None or not self._is_due(self._head):
            return 0
        head, self._head = self._head, None
        self._wait.end()
        return self._publish(head)

    def close(self) -> None:
        """End the reading thread."""
        if self._reader is not None:
            self._reader.close()

    def _feed(self) -> None:
        """Give the reader parts of the present request, or of the next one when that is done."""
        while len(self._under_way) < _AHEAD and (request := self._next()) is not None:
            del self._waiting[repair_request_key(request.request, request.part)]
            if request.gives_up:
                self._give_up(request)
                continue
            job = self._job or self._begin(request)
            if job is None:
                self._end_part(request, Repaired(), _not_captured(request.table))
            else:
                part = RepairPart(request, request.keys, job.recording)
                self._under_way.append(part)
                self._submit(job, part)

    def _next(self) -> RepairRequest | None:
        """Returns the next part of the present request; when all of it is done, the first of another one."""
        if self._job is not None:
            mine = (each for each in self._waiting.values() if each.request == self._job.request)
            if (found := next(mine, None)) is not None or self._under_way:
                return found
            self._stream.forget(self._job.recording)
            self._job = None
        return next(iter(self._waiting.values()), None)

    def _give_up(self, request: RepairRequest) -> None:
        """Remove entries in quarantine. Nothing is read for that, so it needs no turn."""
        found = self._around.tables().get(request.table)
        if found is None:
            self._end_part(request, Repaired(), _not_captured(request.table))
            return
        topic = found[1]
        stamp = HeaderStamp(LSN(self._stream.settled_lsn - 1), None, time.time_ns() // 1_000, "")
        header = stamp.header(DELETE, self._ordinals.next(topic), "0" * 16)
        done = Repaired()
        done.tombstones = self._around.give_up(topic, [each.key for each in request.keys], header)
        self._end_part(request, done, None, topic)

    def _begin(self, request: RepairRequest) -> _Job | None:
        """Begin to record, then to read; None when the table is not captured."""
        found = self._around.tables().get(request.table)
        if found is None:
            return None
        table, topic = found
        partitions = len(self._around.end_offsets(topic))
        writer = RepairWriter(topic, partitions, self._stream, self._ordinals, self._around)
        self._job = job = _Job(request.request, table, topic, self._stream.watch(topic), writer)
        log.info("repair", table=request.table, request=request.request)
        return job

    def _submit(self, job: _Job, part: RepairPart) -> None:
        if self._reader is None:
            self._reader = self._start_reader()
        keys = tuple(each.key for each in part.keys)
        self._reader.submit(KeysTask(part, job.table, keys, part.recording.guard))

    def _take(self) -> KeysRead | None:
        """Returns what the reader brings next. A part that it cannot read ends here."""
        news = self._reader.take() if self._reader is not None else None
        match news:
            case KeysRead():
                return news
            case ReadFailure(KeysTask() as task, error):
                self._finish(task.part, error)
        return None

    def _is_due(self, head: KeysRead) -> bool:
        """Whether the stream is published up to where this was read, and the rows can be encoded."""
        if head.found.moment.lsn > self._stream.settled_lsn:
            self._wait.begin()
            return False
        self._encoder = self._around.encoder(head.found.relation)
        return self._encoder is not None

    def _publish(self, head: KeysRead) -> int:
        part, job, table = head.task.part, self._job, self._encoder
        assert job is not None
        assert table is not None
        if set(table.key_columns) != set(head.found.key):
            self._finish(
                part,
                SourceRefused(
                    f"the key of table {part.request.table} has changed",
                    remedy="run `cdc reconcile --repair` again: it will ask with today's key",
                ),
            )
            return 0
        if table.has_hashed_key:
            self._finish(part, _hashed(part.request.table))
            return 0
        before = part.done.bytes
        part.done.again.clear()
        job.writer.publish(part.keys, head.found, table, part.recording, part.done)
        if part.done.again:
            self._look_up_again(job, part)
        else:
            reach("backfill.inside_repair")
            self._finish(part, None)
        if len(job.recording.keys) > _PRUNE_KEYS:
            job.recording.prune([head.found.moment.snapshot])  # later snapshots of the reader see no less
        return part.done.bytes - before

    def _look_up_again(self, job: _Job, part: RepairPart) -> None:
        """Look keys up again, with a recording that begins after the tombstones that were just produced."""
        self._release(part)
        part.keys, part.recording = tuple(part.done.again), self._stream.watch(job.topic)
        self._submit(job, part)

    def _release(self, part: RepairPart) -> None:
        """End a recording that belongs to this part alone."""
        if self._job is not None and part.recording is not self._job.recording:
            self._stream.forget(part.recording)

    def _finish(self, part: RepairPart, error: CdcError | None) -> None:
        self._release(part)
        self._under_way.remove(part)
        self._end_part(part.request, part.done, error)
        self._feed()  # so that the request's recording ends now, not whenever the next step comes

    def _end_part(self, request: RepairRequest, done: Repaired, error: CdcError | None, topic: str = "") -> None:
        """Write the outcome and the request's tombstone into the Kafka transaction of the part's records."""
        topic = topic or ("" if self._job is None else self._job.topic)
        outcome = RepairOutcome(
            table=request.table,
            topic=topic,
            request=request.request,
            part=request.part,
            rows=done.rows,
            tombstones=done.tombstones,
            touched=done.touched,
            seq=self._ordinals[topic],
            lsn=self._stream.complete_lsn,
            **({} if error is None else {"error": error.message, "remedy": error.remedy}),
        )
        self._around.note(repair_key(request.table), repair_outcome_value(outcome))
        self._around.note(repair_request_key(request.request, request.part), None)
        if error is not None:
            log.error("repair failed", table=request.table, error=error.message, remedy=error.remedy)
        else:
            counts = {"rows": done.rows, "tombstones": done.tombstones, "touched": done.touched}
            log.info("repaired", table=request.table, part=request.part, **counts)


def _not_captured(table: str) -> TopicRefused:
    return TopicRefused(
        f"the bridge does not capture table {table}",
        remedy="the bridge runs with another configuration: restart it, or send it SIGHUP",
    )


def _hashed(table: str) -> SourceRefused:
    return SourceRefused(
        f"the key of table {table} leaves as a hash, which does not tell which row to read",
        remedy=f"publish the whole table again: cdc backfill {shlex.quote(table)} --sweep",
    )
