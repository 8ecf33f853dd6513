"""What has gone into a Kafka transaction, and how long that may wait for more.

A bridge that is faster than the walsender finds the socket empty all the time. At rest that means that there is nothing
more, and rows go out at once; behind a backlog it would mean a Kafka transaction for a few rows each, over a thousand
instead of some dozens. Which of the two it is tells the source alone, by its own clock: behind a backlog the last frame
was sent long after the last commit was made, and a walsender that has come to the end says so with a keepalive. Clocks
of two machines are compared only behind a failover: commits of the former primary may then look old, or new, and rows
wait as long as a full-speed stream has them wait, or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from cdc.bridge.decode.walsender import sent_ts

_MAX_ROWS: Final = 50_000
_FIRST_BYTES, _LEAST_BYTES, _MAX_BYTES = 1024 * 1024, 64 * 1024, 32 * 1024 * 1024
"""A session begins with the first, and doubles it with each commit of about so much. Over a slow network, the largest
would take longer than Kafka lets a transaction be open, in every session again."""
_LONG_COMMIT_S: Final = 10.0
"""Well below the minute after which Kafka, or we, give it up."""
_MIN_AGE_S, _MAX_AGE_S = 0.05, 1.0
_AGE_PER_COMMIT: Final = 20.0
_BUSY_AGE_PER_COMMIT, _MAX_BUSY_AGE_S = 4.0, 0.05
"""Beside a backfill a streamed change may wait this many times what the last commit took, and never longer than that:
the more rows of the backfill are in the Kafka transaction, the longer its commit takes."""
_REST_PER_COMMIT, _MAX_REST_S = 0.5, 0.005
"""After a commit the brokers still write its markers, which takes about half as long. A Kafka transaction that begins
meanwhile is put off by the client for 20 ms, so what comes at once is better kept for those few milliseconds."""
_LIVE_S: Final = 1.0
"""For so long after a source transaction another one is expected."""
_BEHIND_US: Final = 1_000_000
"""A commit that is older when it is sent lies in a backlog. Rows that are so late may wait for company."""


class Batch:
    """The Kafka transaction that is open, or the next one.

    Attributes:
        rest_s: how long to begin no other one after the last commit.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._bytes = self._outside_bytes = 0
        self._opened_at = 0.0
        self._max_age_s = _MIN_AGE_S
        self._streamed_at: float | None = None
        self._newest_at = -_LIVE_S
        self._busy_age_s = 0.0
        self.rest_s = 0.0
        self._last = b""
        self._commit_ts = 0
        self._max_bytes = _FIRST_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether nothing was read for it."""
        return not self._rows

    @property
    def is_due(self) -> bool:
        """Whether it is full, or older than twenty times what the last commit took."""
        is_full = self._rows >= _MAX_ROWS or self._bytes >= self._max_bytes
        return is_full or time.monotonic() - self._opened_at > self._max_age_s

    @property
    def is_late(self) -> bool:
        """Beside a backfill: streamed changes have waited long enough for a Kafka transaction of their own."""
        return self._streamed_at is not None and time.monotonic() - self._streamed_at >= self._busy_age_s

    @property
    def is_behind(self) -> bool:
        """Whether the source has more to send: the last frame came long after the last source commit was made."""
        return self._last.startswith(b"w") and sent_ts(self._last) - self._commit_ts > _BEHIND_US

    @property
    def is_live(self) -> bool:
        """Whether the source is at work and the stream is up to date: rows come that somebody waits for."""
        return time.monotonic() - self._newest_at < _LIVE_S and not self.is_behind

    def opens(self) -> None:
        """What comes now is its first."""
        self._opened_at = time.monotonic()

    def read(self, frames: Sequence[bytes]) -> None:
        """These frames came from the source."""
        if not frames:
            return
        if not self._rows:
            self.opens()
        self._rows += len(frames)
        self._bytes += sum(map(len, frames))
        self._last = frames[-1]

    def streamed(self, commit_ts: int) -> None:
        """A source transaction was taken to its end; it was committed at that time, in µs since 1970."""
        self._commit_ts = commit_ts
        self._newest_at = now = time.monotonic()
        if self._streamed_at is None:
            self._streamed_at = now

    def backfilled(self, size: int) -> None:
        """A portion of a backfill was added, of so many bytes."""
        self._rows += bool(size)
        self._bytes += size

    def went_out(self) -> None:
        """What was read until now went to Kafka outside of the Kafka transaction, whose commit says nothing of it."""
        self._outside_bytes = self._bytes

    def committed(self, took_s: float) -> None:
        """It is committed in Kafka, which took so long; the next one begins."""
        if took_s > _LONG_COMMIT_S:
            self._max_bytes = max(self._max_bytes // 2, _LEAST_BYTES)
        elif took_s < _LONG_COMMIT_S / 2 and self._bytes - self._outside_bytes >= self._max_bytes // 2:
            self._max_bytes = min(2 * self._max_bytes, _MAX_BYTES)
        self._rows = self._bytes = self._outside_bytes = 0
        self._streamed_at = None
        self.rest_s = min(took_s * _REST_PER_COMMIT, _MAX_REST_S)
        self._busy_age_s = min(took_s * _BUSY_AGE_PER_COMMIT, _MAX_BUSY_AGE_S)
        self._max_age_s = min(max(took_s * _AGE_PER_COMMIT, _MIN_AGE_S), _MAX_AGE_S)
