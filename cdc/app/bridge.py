"""WAL → topic: the loop. It confirms an LSN to the slot after the Kafka commit that covers it, never before.

Theory of operation. Frames are read in batches of what is there already; emptying the socket after every message would
make walsender and bridge wake each other for each row. The Kafka transaction is closed

- when the stream is drained and no source transaction is half read: a quiet database gets its rows at once, and what
  arrives during the commit forms the next batch (so batches grow by themselves with the load);
- when it is full (rows, bytes) or older than twenty times what the last commit took: a busy one gets big batches,
  and commits cost it at most about a twentieth of the time.

https://www.postgresql.org/docs/current/protocol-logical-replication.html
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from cdc.app.translate import Translator
from cdc.capture.stream import WalStream
from cdc.change import Begin, Commit, Delete, Insert, Truncate, Update
from cdc.crashpoints import reach
from cdc.decode.pgoutput import PgOutputDecoder
from cdc.decode.walsender import KEEPALIVE_TAG, XLOG_DATA_HEADER_BYTES, XLOG_DATA_TAG, parse_keepalive
from cdc.errors import DecodeError
from cdc.record import Progress

_FRAMES_PER_READ = 512
_MAX_ROWS = 50_000
_MAX_BYTES = 32 * 1024 * 1024
_MIN_AGE_S, _MAX_AGE_S = 0.05, 1.0
_AGE_PER_COMMIT = 20.0
_IDLE_PROGRESS_INTERVAL_S = 1.0
_WAIT_S = 0.5


class Bridge:
    """One streaming session: from a started stream until ``stop`` is set or an error ends it.

    Args:
        stream: frames in, confirmations out.
        translator: makes records of changes.
        has_records: whether the Kafka transaction holds any.
        commit: commits the Kafka transaction with this progress in it.
        resume: the stored progress.
        on_commit: told after each Kafka commit that is confirmed.
    """

    def __init__(
        self,
        *,
        stream: WalStream,
        translator: Translator,
        has_records: Callable[[], bool],
        commit: Callable[[Progress], None],
        resume: Progress,
        on_commit: Callable[[Progress], None],
    ) -> None:
        self._stream = stream
        self._translator = translator
        self._has_records = has_records
        self._commit = commit
        self._on_commit = on_commit
        self._published = resume.lsn
        self._decoder = PgOutputDecoder()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Insert: translator.insert,
            Update: translator.update,
            Delete: translator.delete,
            Begin: translator.begin,
            Commit: translator.commit,
            Truncate: translator.truncate,
        }
        self._rows = 0
        self._bytes = 0
        self._opened_at = 0.0
        self._max_age_s = _MIN_AGE_S
        self._last_commit_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Stream until ``stop`` is set, then publish and confirm what was read.

        Raises:
            CdcError: see its class for what to do; everything confirmed so far is safe.
        """
        while not stop.is_set():
            frames = self._stream.read(_FRAMES_PER_READ)
            if frames:
                self._take(frames)
                if self._is_due():
                    self.close_batch()
            else:
                self._drained()
        self.close_batch()

    def close_batch(self) -> None:
        """Commit the Kafka transaction with the progress it reaches, then confirm that to the server."""
        translator = self._translator
        translator.settle()
        progress = translator.progress()
        if not self._has_records() and progress.lsn == self._published:
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
        self._rows = self._bytes = 0
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
        moved = self._translator.complete_lsn > self._published
        return moved and now - self._last_commit_at > _IDLE_PROGRESS_INTERVAL_S

    def _drained(self) -> None:
        """Nothing more to read for now: publish what is complete, else wait for more."""
        if not self._translator.inside_transaction and (self._has_records() or self._translator.holds_records):
            self.close_batch()
            return
        self._stream.feedback_if_due()
        if self._is_due():
            self.close_batch()
        self._stream.wait(_WAIT_S)
