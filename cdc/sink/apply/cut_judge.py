"""When a cut is worth making, and whether it is true: what ``replay.horizon`` needs to know, asked in time."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from cdc.base.lsn import LSN, ZERO
from cdc.contract.ports import Partition, RecordReader, Restored
from cdc.contract.record import Progress
from cdc.kafka.replay.cut import Cut, CutBuffer
from cdc.kafka.replay.horizon import Horizon, Mark, published_at_most

_PATIENCE_S: Final = 1.0
"""For how long a cut that is not true is put off in favour of one that is."""
_QUIET_S: Final = 30.0
"""Without a cut for so long, the last one is recorded again: that the replica is up to date is news, too."""
_ASK_AGAIN_S: Final = 0.05


class CutJudge:
    """Asks for fences, and judges the places that they make possible.

    Rows may be ahead of the progress (``delivery: idempotent``). Then a progress says how far they were when it was
    drawn up. One that was drawn up after the brokers were asked says so of that moment, too; and the one behind another
    was drawn up after that was written.

    Args:
        reader: tells where partitions end.
        buffer: finds the places.
        progress: the partition of the progress topic.
        restored: what the replica remembers.

    Attributes:
        caught_up_at: seconds since 1970; then the topics held nothing at or beyond the last cut, and all before it is
            applied.
    """

    def __init__(self, reader: RecordReader, buffer: CutBuffer, progress: Partition, restored: Restored) -> None:
        self._reader = reader
        self._buffer = buffer
        self._progress = progress
        self._horizon = Horizon([])
        self._until = ZERO
        self._is_open, self._may_be_unmarked = False, False
        self._last_progress = -1
        self.caught_up_at = restored.caught_up_at or time.time()
        if restored.progress is not None:
            self._until = restored.progress.lsn
            self._horizon.add(Mark(restored.caught_up_at, self._until))
        self._last_offset, self._was_true = -1, False
        self._cut_at = self._asked_at = time.monotonic()

    def published(self, at: float, newest: Progress) -> None:
        """The progress topic was read to its end as it was not before ``at``."""
        self._note(newest)
        if not self._is_open:
            self._horizon.add(Mark(at, self._until))

    def bound(self, compaction_lag_s: float) -> None:
        """The shortest time after which a record cleans anything away."""
        self._horizon.bound(compaction_lag_s)

    def saw(self, progress: Progress, offset: int) -> None:
        """A progress record was read."""
        self._note(progress)
        if self._is_open:
            self._horizon.read(self._last_progress, self._until)
        self._last_progress = offset

    @property
    def published_at_most(self) -> LSN:
        """Behind every position that a record could have when the newest progress was drawn up."""
        return self._until

    def read(self) -> None:
        """Everything that was polled is known."""
        if not self._is_open:
            self._horizon.read(self._reader.positions().get(self._progress, 0), self._until)

    def ask(self) -> None:
        """Ask for a fence when one is of use. What it tells of the progress topic is a mark.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        buffer, positions = self._buffer, self._reader.positions()
        if self._is_quiet() and buffer.is_fence_reached(positions):
            buffer.forget_fence()  # nothing came: another one shows that there is nothing
            self._asked_at = time.monotonic()
        if buffer.wants_fence(positions):
            now, fence = time.time(), self._fence()
            buffer.fence(fence)
            self._horizon.asked(now, fence[self._progress])
            self.read()  # often all of it was read already: then the next cut is known to be as new as that

    def is_of_use(self, place: Cut, joining: Collection[str]) -> bool:
        """Whether a cut there says something new: it may be the last place once more."""
        if place.offset > self._last_offset:
            return True
        if self._buffer.is_full:
            return self._buffer.holds_below(place.progress.lsn)
        return not self._was_true or bool(joining) or time.monotonic() - self._cut_at > _QUIET_S

    def is_true(self, place: Cut, joining: Collection[str]) -> bool:
        """Whether nothing that lies before the cut can have been cleaned away by what lies beyond it.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        now = time.time()
        if self._horizon.proves(place.progress.lsn, now):
            return True
        buffer, positions = self._buffer, self._reader.positions()
        if not buffer.is_passed(place, joining) or time.monotonic() - self._asked_at < _ASK_AGAIN_S:
            return False
        self._asked_at = time.monotonic()
        if not buffer.is_passed(place, joining, positions, self._fence()):
            return False
        self._horizon.add(Mark(now, place.progress.lsn))
        return True

    def may_be_untrue(self, place: Cut) -> bool:
        """Whether there was no cut for so long that one will do which is not true."""
        return place.offset > self._last_offset and time.monotonic() - self._cut_at > _PATIENCE_S

    def took(self, place: Cut, is_true: bool) -> None:
        """The cut is made."""
        mark = self._horizon.newest(place.progress.lsn)
        if mark is not None and self._buffer.has_joined:
            self.caught_up_at = max(self.caught_up_at, mark.at)
        self._last_offset, self._was_true, self._cut_at = place.offset, is_true, time.monotonic()

    def _note(self, progress: Progress) -> None:
        self._until = published_at_most(progress)
        self._is_open = progress.lead is not None and progress.lead.is_open
        self._may_be_unmarked = progress.lead is not None
        if self._may_be_unmarked:
            self._buffer.expect_stale()

    def _fence(self) -> Mapping[Partition, int]:
        return self._reader.fence([self._progress[0]] if self._may_be_unmarked else None)

    def _is_quiet(self) -> bool:
        return time.monotonic() - max(self._cut_at, self._asked_at) > _QUIET_S
