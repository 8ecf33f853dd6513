"""The loop from WAL to topics. It confirms an LSN to the slot after the Kafka commit that covers it, never before.

Theory of operation. The loop reads frames in batches of what has already arrived: if it emptied the socket after every
message, walsender and bridge would wake each other for each row. It commits the Kafka transaction

- when the stream is drained and not behind (``batch``), and no source transaction is half read. A quiet database gets
  its rows at once, and what arrives during the commit forms the next batch, so batches grow with the load;
- when the transaction is full (rows, bytes), or older than twenty times what the last commit took. A busy database gets
  big batches, and commits cost it at most about a twentieth of the time.

The loop fetches what the order engine needs before it can go on. The source may make it wait, but never inside an open
Kafka transaction: the loop commits what is ready first, and does everything but the stream in the meantime.

With ``delivery: idempotent``, rows leave with every read, and a progress follows some hundredths of a second later if
there are rows to cover. The progress is written once Kafka has all of these rows, while more go out, and is confirmed
to the slot once it is committed. Everything but ordinary rows goes into a Kafka transaction. While one is open, both
deliveries are alike; they differ in the tables in ``coverage.py``.

A backfill goes on beside the stream. Between two source transactions, at most one portion of it is published per read,
so that the stream never waits for long. Meanwhile a drained stream commits the Kafka transaction less eagerly, because
each commit costs the backfill time.

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
from cdc.bridge.order.needs import Definition, Empty, EventTopic, Need, Rows, Unfilled
from cdc.bridge.sides import LoopSides
from cdc.contract.change import Begin, Commit, Delete, Insert, LogicalMessage, Relation, Truncate, Update
from cdc.contract.header import TRUNCATE, HeaderStamp
from cdc.contract.record import Progress

_FRAMES_PER_READ = 512
_WAIT_S = 0.5
"""A wait on the idle socket, which does not notice ``stop``."""
_BUSY_WAIT_S = 0.002
"""A wait on the socket while something may happen that does not wake it: in a backfill, a re-read or Kafka."""
_NAP_S = 0.001
"""A nap while there is a backlog, in which the walsender fills the socket undisturbed."""
_PATIENCE_S = 0.2
"""How long a re-read may take before what is ready is committed without it."""
_LATER_S = 0.005
"""How long to wait before the source is asked again for what the engine needs."""
_REACH_S = 1.0
"""How long a Kafka transaction is kept open for the change that removed a row whose key had changed. It nearly always
arrives within milliseconds. A stream that is far behind goes on without it."""
_MAX_UNSEEN = 32
"""How many published transactions are remembered before a snapshot is asked which of them it sees."""

log = structlog.get_logger("cdc.bridge")


class Bridge:
    """One streaming session, from a started stream until ``stop`` is set or an error ends it.

    Args:
        sides: the stream, the source, Kafka and the backfill.
        engine: makes records of changes.
        resume: the stored progress.
        beginnings: tables that the backfill has read, and whose topics must be emptied first. The loop takes them out.
        is_first: commit a progress before anything else, with the backfill's demands: nothing was ever published, or a
            gap is being closed, and readers must learn where the stream begins.
        on_commit: called after each Kafka commit that is confirmed to the server.
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
        self._keeps_whole = self._kafka.keeps_whole
        self._stop = threading.Event()
        self._decoder = PgOutputDecoder()
        self._handlers: dict[type, Callable[[Any], Need | None]] = {
            Insert: engine.insert,
            Update: engine.update,
            Delete: engine.delete,
            Begin: engine.begin,
            Commit: self._source_commit,
            Truncate: engine.truncate,
            LogicalMessage: self._message,
            Relation: self._meet,
        }
        self._rest: list[bytes] = []
        self._batch = Batch()
        self._progress_at = 0.0
        self._may_step = False
        self._reach: LSN | None = None
        self._reach_until = 0.0
        self._has_said = False

    def run(self, stop: threading.Event) -> None:
        """Stream until ``stop`` is set, then publish and confirm what was read.

        Raises:
            CdcError: its class says what to do. Everything confirmed so far is safe.
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
        """Publish everything that was taken, as far as the source allows, then confirm it to the server."""
        self._settle()
        self._commit_ready()

    def _publish(self) -> None:
        """Let a progress cover what was taken, unless that would leave a row under no key."""
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
        """Read held rows again, if that can be done at once."""
        if self._engine.need is not None or self._engine.settle() is not None:
            self._satisfy()

    def _commit_ready(self) -> None:
        """Commit the Kafka transaction with the progress that it reaches, then confirm that to the server."""
        self._send()
        progress = self._reached()
        if self._kafka.coverage is not Coverage.COVERED or self._backfill.wants_flush:
            self._backfill.flush(progress.lsn)
        # Ask again: what the backfill flushed is in a Kafka transaction now
        if self._kafka.coverage is Coverage.COVERED and progress.lsn == self._published and not self._is_first:
            return
        reach("bridge.before_kafka_commit")
        started = time.monotonic()
        self._kafka.commit(progress)
        self._progress_at = time.monotonic()
        self._confirm(progress, self._progress_at - started)

    def _reached(self) -> Progress:
        """Returns how far the stream is. Forgets the transactions that snapshots see, or the record would only grow."""
        engine = self._engine
        if len(engine.unseen) > _MAX_UNSEEN:
            engine.saw(self._source.snapshot().sees)
        return engine.progress()

    def _confirm(self, progress: Progress, took_s: float) -> None:
        """Confirm a progress to the server. It is committed in Kafka, which took this many seconds."""
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
        """Returns the frames that were left when the engine needed something, else those that have arrived."""
        if (followed := self._kafka.covered()) is not None:
            self._confirm(*followed)
        if self._rest:
            frames, self._rest = self._rest, []
            return frames
        frames = self._stream.read(_FRAMES_PER_READ)
        self._batch.read(frames)
        return frames

    def _take(self, frames: list[bytes]) -> bool:
        """Pass frames to the engine, decoded if need be: the hot loop. False if the source makes us wait on the way."""
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

    def _message(self, message: LogicalMessage) -> Need | None:
        """Take a logical message of a transaction. Any other comes outside of Begin and Commit, and has no position."""
        if message.transactional:
            return self._engine.message(message)
        if not self._has_said and self._engine.takes_messages_of(message.prefix):
            self._has_said = True
            log.warning(
                "a message that is not transactional is not an event; further ones are not reported",
                prefix=message.prefix,
                lsn=str(message.lsn),
                remedy="emit it as a part of a transaction: SELECT pg_logical_emit_message(true, …)",
            )
        return None

    def _source_commit(self, message: Commit) -> Need | None:
        self._engine.commit(message)
        self._batch.streamed(message.commit_ts)
        if self._may_step:
            self._step()
        if self._keeps_whole and self._is_due():
            self._publish()
        return self._engine.need

    def _satisfy(self) -> bool:
        """Answer the engine as far as that can be done at once. Returns whether it needs nothing more."""
        while (need := self._engine.need) is not None:
            self._send()
            if isinstance(need, Rows):
                is_answered = self._read_again(need)
            elif isinstance(need, Definition):
                is_answered = self._look_up(need)
            elif isinstance(need, EventTopic):
                self._kafka.ensure(need)  # without a commit before it: state and events stay in one Kafka transaction
                self._engine.has_topic()
                is_answered = True
            else:
                is_answered = self._empty(need)
            if not is_answered:
                return False
        return True

    def _meanwhile(self) -> None:
        """Do what can be done while the source makes us wait. No Kafka transaction stays open for that long."""
        self._commit_ready()
        self._stream.feedback_if_due()
        if not (self._may_step and self._step()):
            self._stop.wait(_LATER_S)

    def _look_up(self, need: Definition) -> bool:
        found = self._source.look_up(need)
        if found is None:
            return False
        if found.demand is not None:
            # Recorded before the topic is touched, or together with the definition that makes the table look begun
            self._backfill.demand(found.demand)
        if isinstance(found.table, TableEncoder) and not found.begins_anew:
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
        """Whether a row is under no key yet: its key changed, and the change that removed the row has not come."""
        if self._reach is None or self._engine.complete_lsn >= self._reach:
            return False
        return time.monotonic() < self._reach_until and not self._stop.is_set()

    def _empty(self, need: Empty) -> bool:
        if self._delete_all(need):
            self._engine.emptied()
            return True
        return False

    def _delete_all(self, need: Empty) -> bool:
        """Write a tombstone for every key, then the definition if the table begins anew. False when stopped.

        The backfill of a table that begins anew is on record already, so readers of the progress know that rows are
        missing.
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
        """Publish a portion of the backfill, if the stream is between two source transactions; once per read."""
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
        if self._beginnings and not engine.holds_records:  # held rows are older, and must not follow the tombstones
            self._begin_anew(self._beginnings.pop())
            self._beginnings.clear()
        return stepped > 0

    def _begin_anew(self, table: TableEncoder) -> None:
        """Empty the topic of a table that must begin anew, when the stream has come to where its rows were read."""
        demand = self._source.begins_anew(table)
        if demand is None:
            return
        ordinal = self._backfill.begin_anew(demand, table.topic)
        before = LSN(self._engine.settled_lsn - 1)  # the position that the backfill's rows get, which follow
        stamp = HeaderStamp(before, self._engine.xid, time.time_ns() // 1_000)
        self._delete_all(Empty(table, stamp.header(TRUNCATE, ordinal, table.fingerprint), is_truncate=False))
        self._engine.meet_again(table.relation.qualified_name)  # its changes were withheld until here, if need be

    def _keepalive(self, frame: bytes) -> None:
        """Advance to the keepalive's position, before which everything was sent. So an idle slot releases WAL, too."""
        keepalive = parse_keepalive(frame)
        self._engine.advance(keepalive.end_lsn)
        if keepalive.reply_requested:
            self._stream.feedback(keepalive.end_lsn)

    def _is_due(self) -> bool:
        """Whether a progress is due: the batch is full or old, or the interval for a progress without one is over."""
        if self._is_short_of_its_reach:
            return False
        coverage, rule = self._kafka.coverage, self._kafka.rule
        if coverage is Coverage.IN_TRANSACTION or self._engine.holds_records:
            is_cut = self._keeps_whole and self._engine.inside_transaction  # a source transaction would be in two parts
            return self._batch.is_overdue if is_cut else self._batch.is_due
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
        """Publish what is complete, as there is nothing to read for now; else wait for more."""
        coverage = self._kafka.coverage
        is_busy = self._backfill.is_active or self._is_short_of_its_reach
        has_records = coverage is Coverage.IN_TRANSACTION or self._engine.holds_records
        is_behind = self._batch.is_behind
        # Beside a backfill, each commit costs it time. A progress that is written while rows go out costs it nothing.
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
            # Look again soon at what is on its way to Kafka: its arrival does not wake a wait on the socket.
            is_busy |= self._kafka.coverage in UNDER_WAY or self._engine.holds_records
            self._stream.wait(_BUSY_WAIT_S if is_busy else _WAIT_S)
