"""WAL → topic: the loop. It confirms an LSN to the slot after the Kafka commit that covers it, never before.

Theory of operation. Frames are read in batches of what is there already; emptying the socket after every message would
make walsender and bridge wake each other for each row. The Kafka transaction is closed

- when the stream is drained and no source transaction is half read: a quiet database gets its rows at once, and what
  arrives during the commit forms the next batch (so batches grow by themselves with the load);
- when it is full (rows, bytes) or older than twenty times what the last commit took: a busy one gets big batches,
  and commits cost it at most about a twentieth of the time.

A backfill goes on beside the stream: between two source transactions one portion of it at most per read, so that the
stream never waits for long. While it does, a drained stream closes the Kafka transaction less eagerly, for each one
costs the backfill the time of its commit.

https://www.postgresql.org/docs/current/protocol-logical-replication.html
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from cdc.app.translate import Translator
from cdc.capture.stream import WalStream
from cdc.change import Begin, Commit, Delete, Insert, Relation, Truncate, Update
from cdc.crashpoints import reach
from cdc.decode.pgoutput import PgOutputDecoder
from cdc.decode.walsender import KEEPALIVE_TAG, XLOG_DATA_HEADER_BYTES, XLOG_DATA_TAG, parse_keepalive
from cdc.errors import DecodeError
from cdc.lsn import LSN
from cdc.record import Progress
from cdc.snapshot import Snapshot

_FRAMES_PER_READ = 512
_MAX_ROWS = 50_000
_MAX_BYTES = 32 * 1024 * 1024
_MIN_AGE_S, _MAX_AGE_S = 0.05, 1.0
_AGE_PER_COMMIT = 20.0
_BUSY_AGE_PER_COMMIT, _MAX_BUSY_AGE_S = 4.0, 0.1
"""Beside a backfill a streamed change may wait this many times what the last commit took, and never longer than that:
the more rows of the backfill are in the Kafka transaction, the longer its commit takes."""
_IDLE_PROGRESS_INTERVAL_S = 1.0
_WAIT_S = 0.5
_BUSY_WAIT_S = 0.002
_MAX_UNSEEN = 32
"""Published transactions remembered without asking whether snapshots see them by now."""


class Beside(Protocol):
    """What goes on beside the stream: the backfill."""

    @property
    def is_active(self) -> bool:
        """Whether ``step`` has something to do, now or soon."""

    @property
    def wants_flush(self) -> bool:
        """Whether something waits to be written although no row was published."""

    def attend(self) -> None:
        """Take up new work."""

    def step(self) -> int:
        """Publish a portion; bytes produced."""

    def flush(self, lsn: LSN) -> None:
        """Write down how far it is, into the Kafka transaction that is about to be committed."""


class Bridge:
    """One streaming session: from a started stream until ``stop`` is set or an error ends it.

    Args:
        stream: frames in, confirmations out.
        translator: makes records of changes.
        backfill: goes on beside the stream.
        snapshot: what the source sees now.
        has_records: whether the Kafka transaction holds any.
        commit: commits the Kafka transaction with this progress in it.
        resume: the stored progress.
        is_first: readers are told at once where the stream begins, and the backfill's demands are written down:
            nothing was published ever, or a gap is being closed.
        watch: called in every pass; must not wait.
        on_commit: told after each Kafka commit that is confirmed.
    """

    def __init__(
        self,
        *,
        stream: WalStream,
        translator: Translator,
        backfill: Beside,
        snapshot: Callable[[], Snapshot],
        has_records: Callable[[], bool],
        commit: Callable[[Progress], None],
        resume: Progress,
        is_first: bool = False,
        watch: Callable[[], None] = lambda: None,
        on_commit: Callable[[Progress], None],
    ) -> None:
        self._stream = stream
        self._translator = translator
        self._backfill = backfill
        self._snapshot = snapshot
        self._has_records = has_records
        self._commit = commit
        self._on_commit = on_commit
        self._published = resume.lsn
        self._is_first = is_first
        self._watch = watch
        self._decoder = PgOutputDecoder()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Insert: translator.insert,
            Update: translator.update,
            Delete: translator.delete,
            Begin: translator.begin,
            Commit: self._source_commit,
            Truncate: translator.truncate,
            Relation: translator.relation,
        }
        self._rows = 0
        self._bytes = 0
        self._opened_at = self._streamed_at = 0.0
        self._max_age_s = _MIN_AGE_S
        self._busy_age_s = 0.0
        self._last_commit_at = 0.0
        self._has_streamed = False
        self._may_step = False

    def run(self, stop: threading.Event) -> None:
        """Stream until ``stop`` is set, then publish and confirm what was read.

        Raises:
            CdcError: see its class for what to do; everything confirmed so far is safe.
        """
        self._backfill.attend()
        if self._is_first:
            self.close_batch()
        while not stop.is_set():
            self._watch()
            self._backfill.attend()
            frames = self._stream.read(_FRAMES_PER_READ)
            self._may_step = self._backfill.is_active
            if frames:
                self._take(frames)
            stepped = self._may_step and self._step()
            if frames or stepped:
                if self._is_due() or (stepped and self._is_late()):
                    self.close_batch()
            else:
                self._drained()
        self.close_batch()

    def close_batch(self) -> None:
        """Commit the Kafka transaction with the progress it reaches, then confirm that to the server."""
        translator = self._translator
        translator.settle()
        if len(translator.unseen) > _MAX_UNSEEN:
            translator.saw(self._snapshot().sees)
        progress = translator.progress()
        if self._has_records() or self._backfill.wants_flush:
            self._backfill.flush(progress.lsn)
        if not self._has_records() and progress.lsn == self._published and not self._is_first:
            return
        reach("bridge.before_kafka_commit")
        started = time.monotonic()
        self._commit(progress)
        self._last_commit_at = time.monotonic()
        took = self._last_commit_at - started
        reach("bridge.after_kafka_commit")
        self._stream.confirm(progress.lsn)
        reach("bridge.after_confirm")
        self._published = progress.lsn
        self._is_first = False
        self._rows = self._bytes = 0
        self._has_streamed = False
        self._busy_age_s = min(took * _BUSY_AGE_PER_COMMIT, _MAX_BUSY_AGE_S)
        self._max_age_s = min(max(took * _AGE_PER_COMMIT, _MIN_AGE_S), _MAX_AGE_S)
        self._on_commit(progress)

    def _take(self, frames: list[bytes]) -> None:
        """Decode and hand on; the hot loop."""
        decode, handlers = self._decoder.decode, self._handlers
        if not self._rows:
            self._opened_at = time.monotonic()
        self._rows += len(frames)
        self._bytes += sum(map(len, frames))
        for frame in frames:
            kind = frame[0]
            if kind == XLOG_DATA_TAG:
                message = decode(frame[XLOG_DATA_HEADER_BYTES:])
                handler = handlers.get(type(message))
                if handler is not None:
                    handler(message)
            elif kind == KEEPALIVE_TAG:
                self._keepalive(frame)
            else:
                raise DecodeError(f"unknown frame {frame[:1]!r} from the walsender")

    def _source_commit(self, message: Commit) -> None:
        self._translator.commit(message)
        if not self._has_streamed:
            self._has_streamed = True
            self._streamed_at = time.monotonic()
        if self._may_step:
            self._step()

    def _step(self) -> bool:
        """A portion of the backfill, when the stream stands between two source transactions; once per read."""
        if self._translator.inside_transaction:
            return False
        self._may_step = False
        if not self._rows and not self._has_records():
            self._opened_at = time.monotonic()
        stepped = self._backfill.step()
        self._bytes += stepped
        self._rows += bool(stepped)
        return stepped > 0

    def _keepalive(self, frame: bytes) -> None:
        """Everything before the keepalive's position was sent: an idle slot advances, unrelated WAL is let go."""
        keepalive = parse_keepalive(frame)
        self._translator.advance(keepalive.end_lsn)
        if keepalive.reply_requested:
            self._stream.feedback(keepalive.end_lsn)

    def _is_due(self) -> bool:
        """The Kafka transaction is full or old; or the position moved for a second with nothing of ours in it.

        One progress record a second is enough for an idle database, and keeps its slot from pinning WAL.
        """
        now = time.monotonic()
        if self._has_records() or self._translator.holds_records:
            return self._rows >= _MAX_ROWS or self._bytes >= _MAX_BYTES or now - self._opened_at > self._max_age_s
        if self._backfill.wants_flush:
            return True
        moved = self._translator.complete_lsn > self._published
        return moved and now - self._last_commit_at > _IDLE_PROGRESS_INTERVAL_S

    def _is_late(self) -> bool:
        """Beside a backfill: streamed changes have waited long enough for a Kafka transaction of their own."""
        if not self._has_streamed or self._translator.inside_transaction:
            return False
        return time.monotonic() - self._streamed_at >= self._busy_age_s

    def _drained(self) -> None:
        """Nothing more to read for now: publish what is complete, else wait for more."""
        busy = self._backfill.is_active
        has_records = self._has_records() or self._translator.holds_records
        if has_records and not self._translator.inside_transaction and (not busy or self._is_late()):
            self.close_batch()
            return
        self._stream.feedback_if_due()
        if self._is_due():
            self.close_batch()
        self._stream.wait(_BUSY_WAIT_S if busy else _WAIT_S)
