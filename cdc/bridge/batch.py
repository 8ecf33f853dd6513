"""Measures what has gone into a Kafka transaction, and decides how long that may wait for more.

A bridge that is faster than the walsender always finds the socket empty. On an idle database, that means that there is
nothing more, and rows should go out at once. During a backlog, it would mean a Kafka transaction for every few rows:
over a thousand instead of some dozens. Only the source can tell the two apart, by its own clock: during a backlog, the
last frame was sent long after the last commit was made, and a walsender that has reached the end says so with a
keepalive. The clocks of two machines are compared only after a failover. Commits of the former primary may look old or
new then, and rows wait as long as they do in a stream at full speed, or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from cdc.bridge.decode.walsender import sent_ts

_MAX_ROWS: Final = 50_000
FIRST_BYTES, _LEAST_BYTES, _MAX_BYTES = 1024 * 1024, 64 * 1024, 32 * 1024 * 1024
"""A session begins with the first size, and doubles it with each commit of about that size. If it began with the
largest, its commit over a slow network would take longer than Kafka keeps a transaction open, in every session again.
"""
_LONG_COMMIT_S: Final = 10.0
"""Well below the minute after which Kafka or the bridge gives a transaction up."""
MIN_AGE_S, MAX_AGE_S = 0.05, 1.0
_AGE_PER_COMMIT: Final = 20.0
_BUSY_AGE_PER_COMMIT, _MAX_BUSY_AGE_S = 4.0, 0.05
"""A streamed change may wait this many times as long as the last commit took while a backfill goes on, but never longer
than the maximum: the more rows of the backfill are in the Kafka transaction, the longer its commit takes."""
_WHOLE_ROWS, _WHOLE_BYTES = 50_000, 8 * 1024 * 1024
"""How much more a Kafka transaction takes so that a source transaction is not cut in two."""
_REST_PER_COMMIT, _MAX_REST_S = 0.5, 0.005
"""The brokers still write a commit's markers after it, which takes about half as long. The client puts off a Kafka
transaction that begins meanwhile by 20 ms, so it is better to keep rows back for those few milliseconds."""
_LIVE_S: Final = 1.0
"""How long after a source transaction another one is expected."""
_BACKLOG_US: Final = 1_000_000
"""A commit that is older than this when it is sent lies in a backlog. Rows that are so late may wait for others."""


class Batch:
    """The open Kafka transaction, or the next one.

    Attributes:
        rest_s: how long to wait after the last commit before the next transaction begins.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._bytes = self._outside_bytes = 0
        self._opened_at = 0.0
        self._max_age_s = MIN_AGE_S
        self._streamed_at: float | None = None
        self._newest_at = -_LIVE_S
        self._busy_age_s = 0.0
        self.rest_s = 0.0
        self._last = b""
        self._commit_ts = 0
        self._max_bytes = FIRST_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read for the transaction."""
        return not self._rows

    @property
    def is_due(self) -> bool:
        """Whether the transaction is full, or older than twenty times what the last commit took."""
        is_full = self._rows >= _MAX_ROWS or self._bytes >= self._max_bytes
        return is_full or time.monotonic() - self._opened_at > self._max_age_s

    @property
    def is_overdue(self) -> bool:
        """Whether the transaction must end although it cuts a source transaction in two."""
        is_full = self._rows >= _MAX_ROWS + _WHOLE_ROWS or self._bytes >= self._max_bytes + _WHOLE_BYTES
        return is_full or time.monotonic() - self._opened_at > _LONG_COMMIT_S

    @property
    def is_late(self) -> bool:
        """Whether streamed changes have waited long enough beside a backfill to be committed on their own."""
        return self._streamed_at is not None and time.monotonic() - self._streamed_at >= self._busy_age_s

    @property
    def is_behind(self) -> bool:
        """Whether the source has more to send: the last frame was sent long after the last source commit was made."""
        return self._last.startswith(b"w") and sent_ts(self._last) - self._commit_ts > _BACKLOG_US

    @property
    def is_live(self) -> bool:
        """Whether the source is at work and the stream up to date, so that somebody may wait for rows."""
        return time.monotonic() - self._newest_at < _LIVE_S and not self.is_behind

    def opens(self) -> None:
        """Begin to count the transaction's age: what comes now is its first."""
        self._opened_at = time.monotonic()

    def read(self, frames: Sequence[bytes]) -> None:
        """Count frames that came from the source."""
        if not frames:
            return
        if not self._rows:
            self.opens()
        self._rows += len(frames)
        self._bytes += sum(map(len, frames))
        self._last = frames[-1]

    def streamed(self, commit_ts: int) -> None:
        """Note the end of a source transaction, and when it was committed, in µs since 1970."""
        self._commit_ts = commit_ts
        self._newest_at = now = time.monotonic()
        if self._streamed_at is None:
            self._streamed_at = now

    def backfilled(self, size: int) -> None:
        """Count a portion of a backfill, and its size in bytes."""
        self._rows += bool(size)
        self._bytes += size

    def went_out(self) -> None:
        """Note that everything so far went out beside the Kafka transaction, whose commit says nothing about it."""
        self._outside_bytes = self._bytes

    def committed(self, took_s: float) -> None:
        """Begin the next transaction, and adapt limits to the time that the last commit took."""
        if took_s > _LONG_COMMIT_S:
            self._max_bytes = max(self._max_bytes // 2, _LEAST_BYTES)
        elif took_s < _LONG_COMMIT_S / 2 and self._bytes - self._outside_bytes >= self._max_bytes // 2:
            self._max_bytes = min(2 * self._max_bytes, _MAX_BYTES)
        self._rows = self._bytes = self._outside_bytes = 0
        self._streamed_at = None
        self.rest_s = min(took_s * _REST_PER_COMMIT, _MAX_REST_S)
        self._busy_age_s = min(took_s * _BUSY_AGE_PER_COMMIT, _MAX_BUSY_AGE_S)
        self._max_age_s = min(max(took_s * _AGE_PER_COMMIT, MIN_AGE_S), MAX_AGE_S)
