"""WAL → topic: the loop. It confirms an LSN to the slot after the Kafka commit that covers it, never before.

Theory of operation. Frames are read in batches of what is there already; emptying the socket after every message would
make walsender and bridge wake each other for each row. The Kafka transaction is closed

- when the stream is drained, not behind (``batch``), and no source transaction is half read: a quiet database gets its
  rows at once, and what arrives during the commit forms the next batch (so batches grow by themselves with the load);
- when it is full (rows, bytes) or older than twenty times what the last commit took: a busy one gets big batches,
  and commits cost it at most about a twentieth of the time.

What the order engine needs before it can go on is fetched here. The source may keep us waiting for it, but never inside
an open Kafka transaction: what is ready is committed first, and everything but the stream goes on meanwhile.

With ``delivery: idempotent`` rows leave with every read, and a progress follows some hundredths of a second later, when
it has rows to cover. It is written once Kafka has all of these, beside the rows that go out meanwhile, and confirmed to
the slot once it is committed. While a Kafka transaction is open, for whatever is no ordinary row, both deliveries are
alike; what they differ in are the tables in ``coverage.py``.

A backfill goes on beside the stream: between two source transactions one portion of it at most per read, so that the
stream never waits for long. While it does, a drained stream closes the Kafka transaction less eagerly, for each one
costs the backfill the time of its commit.

https://www.postgresql.org/docs/current/protocol-logical-replication.html
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from cdc.base.crashpoints import reach
from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.bridge.batch import Batch
from cdc.bridge.coverage import IDLE_S, UNDER_WAY, Coverage, ProgressGoes
from cdc.bridge.decode.pgoutput import PgOutputDecoder
from cdc.bridge.decode.walsender import KEEPALIVE_TAG, XLOG_DATA_HEADER_BYTES, XLOG_DATA_TAG, parse_keepalive
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.needs import Definition, Empty, Need, Rows, Unfilled
from cdc.bridge.sides import LoopSides
from cdc.contract.change import Begin, Commit, Delete, Insert, Relation, Truncate, Update
from cdc.contract.header import TRUNCATE, HeaderStamp
from cdc.contract.record import Progress

_FRAMES_PER_READ = 512
_WAIT_S = 0.5
_BUSY_WAIT_S = 0.002
_NAP_S = 0.001
"""Behind a backlog: the walsender fills the socket meanwhile, undisturbed."""
_PATIENCE_S = 0.2
"""How long a re-read may take before what is ready is committed without it."""
_LATER_S = 0.005
_REACH_S = 1.0
"""How long a Kafka transaction is kept open for what removed a row that had changed its key. It is nearly always here
within milliseconds; a stream that is far behind goes on without."""
_MAX_UNSEEN = 32
"""Published transactions remembered without asking whether snapshots see them by now."""

log = structlog.get_logger("cdc.bridge")


class Bridge:
    """One streaming session: from a started stream until ``stop`` is set or an error ends it.

    Args:
        sides: what the loop stands between.
        engine: makes records of changes.
        resume: the stored progress.
        beginnings: tables that the backfill read, and whose topics must be emptied first; taken from here.
        is_first: readers are told at once where the stream begins, and the backfill's demands are written down:
            nothing was published ever, or a gap is being closed.
        on_commit: told after each Kafka commit that is confirmed.
    """

    def __init__(
        self,
        sides: LoopSides,
        engine: Engine,
        resume: Progress,
        *,
        beginnings: list[TableEncoder],
        is_first: bool = False,
        on_commit: Callable[[Progress], None],
    ) -> None:
        self._stream, self._source, self._kafka, self._backfill = sides
        self._engine = engine
        self._beginnings = beginnings
        self._on_commit = on_commit
        self._published = resume.lsn
        self._is_first = is_first
        self._stop = threading.Event()
        self._decoder = PgOutputDecoder()
        self._handlers: dict[type, Callable[[Any], Need | None]] = {
            Insert: engine.insert,
            Update: engine.update,
            Delete: engine.delete,
            Begin: engine.begin,
            Commit: self._source_commit,
            Truncate: engine.truncate,
            Relation: self._meet,
        }
        self._rest: list[bytes] = []
        self._batch = Batch()
        self._progress_at = 0.0
        self._may_step = False
        self._reach: LSN | None = None
        self._reach_until = 0.0

    def run(self, stop: threading.Event) -> None:
        """Stream until ``stop`` is set, then publish and confirm what was read.

        Raises:
            CdcError: see its class for what to do; everything confirmed so far is safe.
        """
        self._stop = stop
        if self._is_first:
            self.close_batch()
        while not stop.is_set():
            self._kafka.look()
            self._backfill.attend()
            self._may_step = self._backfill.is_active
            if self._engine.need is not None:
                if not self._satisfy():
                    self._meanwhile()
                continue
            frames = self._read()
            if not self._take(frames):
                self._meanwhile()
                continue
            stepped = self._may_step and self._step()
            if frames or stepped:
                if self._is_due() or (stepped and self._is_late()):
                    self._publish()
            else:
                self._drained()
        self.close_batch()
        self._kafka.end(self._engine.progress())

    def close_batch(self) -> None:
        """Publish everything that was taken, as far as the source lets us; then confirm that to the server."""
        self._settle()
        self._commit_ready()

    def _publish(self) -> None:
        """Have a progress cover what was taken, unless a row would be under no key meanwhile."""
        self._settle()
        self._send()
        if self._is_short_of_its_reach:
            return
        if self._kafka.rule.progress is ProgressGoes.INSIDE or self._backfill.wants_flush:
            self._commit_ready()
            if self._kafka.coverage is Coverage.COVERED:
                self._stop.wait(self._batch.rest_s)
        else:
            self._progress_at = time.monotonic()
            self._kafka.cover(self._reached())

    def _settle(self) -> None:
        """Have what is held read again, if that can be done at once."""
        if self._engine.need is not None or self._engine.settle() is not None:
            self._satisfy()

    def _commit_ready(self) -> None:
        """Commit the Kafka transaction with the progress it reaches, then confirm that to the server."""
        self._send()
        progress = self._reached()
        if self._kafka.coverage is not Coverage.COVERED or self._backfill.wants_flush:
            self._backfill.flush(progress.lsn)
        if self._kafka.coverage is Coverage.COVERED and progress.lsn == self._published and not self._is_first:
            return
        reach("bridge.before_kafka_commit")
        started = time.monotonic()
        self._kafka.commit(progress)
        self._progress_at = time.monotonic()
        self._confirm(progress, self._progress_at - started)

    def _reached(self) -> Progress:
        """Where the stream is; what snapshots see by now is forgotten, or the record would grow with each commit."""
        engine = self._engine
        if len(engine.unseen) > _MAX_UNSEEN:
            engine.saw(self._source.snapshot().sees)
        return engine.progress()

    def _confirm(self, progress: Progress, took_s: float) -> None:
        """This progress is committed in Kafka, which took so long: the server may hear of it."""
        reach("bridge.after_kafka_commit")
        self._stream.confirm(progress.lsn)
        reach("bridge.after_confirm")
        self._published = progress.lsn
        self._is_first = False
        self._reach = None
        self._batch.committed(took_s)
        self._engine.published()
        self._on_commit(progress)

    def _read(self) -> list[bytes]:
        """Read the frames that were left when the engine needed something, else those that are there by now."""
        if (followed := self._kafka.covered()) is not None:
            self._confirm(*followed)
        if self._rest:
            frames, self._rest = self._rest, []
            return frames
        frames = self._stream.read(_FRAMES_PER_READ)
        self._batch.read(frames)
        return frames

    def _take(self, frames: list[bytes]) -> bool:
        """Hand on, decoded if need be; the hot loop. False when the source keeps us waiting, with frames left over."""
        decode, handlers, feed = self._decoder.decode, self._handlers, self._engine.feed
        place, end = 0, len(frames)
        while (place := feed(frames, place, self._decoder.relations)) < end:
            frame = frames[place]
            place += 1
            kind = frame[0]
            if kind == XLOG_DATA_TAG:
                message = decode(frame[XLOG_DATA_HEADER_BYTES:])
                handler = handlers.get(type(message))
                if handler is not None and handler(message) is not None and not self._satisfy():
                    self._rest = frames[place:]
                    return False
            elif kind == KEEPALIVE_TAG:
                self._keepalive(frame)
            else:
                raise DecodeError(
                    f"unknown frame {frame[:1]!r} from the walsender",
                    remedy="report it with the versions of PostgreSQL and cdc: the bridge does not know this "
                    "server's protocol",
                )
        self._send()
        return True

    def _send(self) -> None:
        if (ready := self._engine.take()) and self._kafka.send(ready):
            self._batch.went_out()

    def _meet(self, relation: Relation) -> None:
        for demand in self._source.meet(relation):
            self._backfill.demand(demand)

    def _source_commit(self, message: Commit) -> Need | None:
        self._engine.commit(message)
        self._batch.streamed(message.commit_ts)
        if self._may_step:
            self._step()
        return self._engine.need

    def _satisfy(self) -> bool:
        """Answer the engine as far as that can be done at once; whether it needs nothing any more."""
        while (need := self._engine.need) is not None:
            self._send()
            if isinstance(need, Rows):
                is_answered = self._read_again(need)
            elif isinstance(need, Definition):
                is_answered = self._look_up(need)
            else:
                is_answered = self._empty(need)
            if not is_answered:
                return False
        return True

    def _meanwhile(self) -> None:
        """The source keeps us waiting: nothing stays open in Kafka for that, and what need not wait goes on."""
        self._commit_ready()
        self._stream.feedback_if_due()
        if not (self._may_step and self._step()):
            self._stop.wait(_LATER_S)

    def _look_up(self, need: Definition) -> bool:
        found = self._source.look_up(need)
        if found is None:
            return False
        if found.demand is not None:
            # On record before the topic is touched, or with the definition that makes the table look begun
            self._backfill.demand(found.demand)
        if found.table is not None and not found.begins_anew:
            self._kafka.describe(found.table)
        self._engine.table(found.table, begins_anew=found.begins_anew)
        return True

    def _read_again(self, need: Rows) -> bool:
        reading = self._source.read(need, _PATIENCE_S)
        if reading is None:
            return False
        answered = zip(need.keys, reading.answers, strict=False)
        if unreadable := [key for keys, answer in answered if answer is Unfilled.UNREADABLE for key in keys]:
            table = need.table.relation.qualified_name
            log.warning(
                "table was altered later in the stream: its rows are published again when the stream gets there",
                table=table,
                remedy="wait: the stream gets there by itself; `cdc backfill --list` says how far",
            )
            self._kafka.ask_again(table, unreadable)
        if reading.end is not None and self._reach is None:
            self._reach_until = time.monotonic() + _REACH_S
        self._reach = reading.end or self._reach
        self._engine.rows(reading.answers)
        return True

    @property
    def _is_short_of_its_reach(self) -> bool:
        """A row that changed its key is gone by now: it is under no key until the change that removed it comes."""
        if self._reach is None or self._engine.complete_lsn >= self._reach:
            return False
        return time.monotonic() < self._reach_until and not self._stop.is_set()

    def _empty(self, need: Empty) -> bool:
        if self._delete_all(need):
            self._engine.emptied()
            return True
        return False

    def _delete_all(self, need: Empty) -> bool:
        """A tombstone for every key; behind them the definition of a table that begins anew. False when stopped.

        That table's backfill is on record already, so whoever reads the progress knows that rows are missing.
        """
        self._commit_ready()
        if not need.is_truncate:
            reach("bridge.inside_begin_anew")
        feedback = self._stream.feedback_if_due
        if not self._kafka.empty(need, commit=self._commit_ready, sign_of_life=feedback, stop=self._stop):
            return False
        if not need.is_truncate:
            self._kafka.describe(need.table)
            reach("bridge.inside_begin_anew")
        return True

    def _step(self) -> bool:
        """A portion of the backfill, when the stream stands between two source transactions; once per read."""
        engine = self._engine
        if engine.need is None:
            self._settle()
        if engine.inside_transaction or engine.is_partial or (self._kafka.is_busy and self._batch.is_live):
            return False
        self._may_step = False
        self._send()
        if self._batch.is_empty and self._kafka.coverage is Coverage.COVERED:
            self._batch.opens()
        stepped = self._backfill.step(self.close_batch)
        self._batch.backfilled(stepped)
        if self._beginnings and not engine.holds_records:
            self._begin_anew(self._beginnings.pop())
            self._beginnings.clear()
        return stepped > 0

    def _begin_anew(self, table: TableEncoder) -> None:
        """Rows were read from a table, and the stream has come to where they were read."""
        demand = self._source.begins_anew(table)
        if demand is None:
            return
        self._backfill.demand(demand)
        before = LSN(self._engine.settled_lsn - 1)  # as the backfill's rows that follow
        stamp = HeaderStamp(before, self._engine.xid, time.time_ns() // 1_000)
        self._delete_all(Empty(table, stamp.header(TRUNCATE, 0, table.fingerprint), is_truncate=False))

    def _keepalive(self, frame: bytes) -> None:
        """Everything before the keepalive's position was sent: an idle slot advances, unrelated WAL is let go."""
        keepalive = parse_keepalive(frame)
        self._engine.advance(keepalive.end_lsn)
        if keepalive.reply_requested:
            self._stream.feedback(keepalive.end_lsn)

    def _is_due(self) -> bool:
        """Whether the next progress is: the batch is full or old, or it is time for one that goes without a batch."""
        if self._is_short_of_its_reach:
            return False
        coverage, rule = self._kafka.coverage, self._kafka.rule
        if coverage is Coverage.IN_TRANSACTION or self._engine.holds_records:
            return self._batch.is_due
        if self._backfill.wants_flush:
            return coverage is Coverage.COVERED or self._batch.is_due
        if rule.every_s is None:
            return False
        every_s = IDLE_S if self._engine.inside_transaction else rule.every_s
        if time.monotonic() - self._progress_at <= every_s:
            return False
        return rule.when_idle or self._engine.complete_lsn > self._published

    def _is_late(self) -> bool:
        return self._batch.is_late and not self._engine.inside_transaction

    def _drained(self) -> None:
        """Nothing more to read for now: publish what is complete, else wait for more."""
        coverage = self._kafka.coverage
        is_busy = self._backfill.is_active or self._is_short_of_its_reach
        has_records = coverage is Coverage.IN_TRANSACTION or self._engine.holds_records
        is_behind = self._batch.is_behind
        # Beside a backfill, each commit costs it time; a progress that is written beside the rows costs it nothing.
        may_publish = not is_busy or self._is_late() or self._kafka.rule.progress is not ProgressGoes.INSIDE
        if has_records and not is_behind and not self._engine.inside_transaction and may_publish:
            self._publish()
            if self._kafka.coverage is Coverage.COVERED:
                return
        self._stream.feedback_if_due()
        if self._is_due():
            self._publish()
        if has_records and is_behind:
            self._stop.wait(_NAP_S)
        else:
            # What is on its way to Kafka is looked at again soon; a socket says nothing of that.
            is_busy |= self._kafka.coverage in UNDER_WAY or self._engine.holds_records
            self._stream.wait(_BUSY_WAIT_S if is_busy else _WAIT_S)
