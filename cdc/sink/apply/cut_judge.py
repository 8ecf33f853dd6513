"""Decides when a cut is worth making and whether it is true. Asks the brokers what ``replay.horizon`` needs to know."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from cdc.base.lsn import LSN, ZERO
from cdc.contract.ports import Partition, RecordReader, Restored
from cdc.contract.record import Progress
from cdc.kafka.replay.cut import Cut, CutBuffer
from cdc.kafka.replay.horizon import ClockWatch, Horizon, Mark, published_at_most
from cdc.sink.apply.topics import raise_set_back

_PATIENCE_S: Final = 1.0
"""The sink waits this long for a true cut before it takes one that is not true."""
_QUIET_S: Final = 30.0
"""The last cut is recorded again after this long without a new one, to show readers that the replica is up to date."""
_ASK_AGAIN_S: Final = 0.05


class CutJudge:
    """Asks for fences, and judges the cuts that they make possible.

    With ``delivery: idempotent``, rows may reach the topics before the progress that covers them. A progress record
    then says how far the rows were when it was drawn up. To learn how far they were when the brokers were asked, the
    judge needs a record that was drawn up later. A record that follows another was drawn up after that one was written.

    Args:
        reader: tells where partitions end.
        buffer: finds the places for a cut.
        progress: the partition of the progress topic.
        restored: what the replica remembers.

    Attributes:
        caught_up_at: a moment, in seconds since 1970, at which the topics held nothing at or beyond the last cut.
            Everything before that cut is applied.
    """

    def __init__(self, reader: RecordReader, buffer: CutBuffer, progress: Partition, restored: Restored) -> None:
        self._reader = reader
        self._buffer = buffer
        self._progress = progress
        self._horizon = Horizon([])
        self._until = ZERO
        self._is_open, self._may_be_unmarked = False, False
        self._last_progress = -1
        self._clock = ClockWatch()
        now = self.now()
        self.caught_up_at = min(restored.caught_up_at or now, now)
        if restored.progress is not None:
            self._until = restored.progress.lsn
            # A moment that is still to come was noted before the clock was set back: nobody knows its age
            if restored.caught_up_at <= now:
                self._horizon.add(Mark(restored.caught_up_at, self._until))
        self._last_offset, self._was_true = -1, False
        self._cut_at = self._asked_at = time.monotonic()

    def now(self) -> float:
        """Returns the time, in seconds since 1970, after a look whether the clock was set back."""
        return self._clock.note(time.time(), time.monotonic())

    def published(self, at: float, newest: Progress) -> None:
        """Notes the newest progress record. The progress topic was read to an end that it had at ``at`` or later."""
        self._note(newest)
        if not self._is_open:
            self._horizon.add(Mark(at, self._until))

    def bound(self, compaction_lag_s: float) -> None:
        """Sets the age below which a record cannot have made the cleaner remove an older one."""
        self._horizon.bound(compaction_lag_s)

    def saw(self, progress: Progress, offset: int) -> None:
        """Notes a progress record that was read."""
        self._note(progress)
        if self._is_open:
            # This record was drawn up after the one before it was written: it speaks of the topic up to that offset
            self._horizon.read(self._last_progress, self._until)
        self._last_progress = offset

    @property
    def published_at_most(self) -> LSN:
        """An LSN greater than that of any record written before the newest progress was drawn up."""
        return self._until

    def read(self) -> None:
        """Notes that all polled progress records were seen."""
        if not self._is_open:
            self._horizon.read(self._reader.positions().get(self._progress, 0), self._until)

    def ask(self) -> None:
        """Asks the brokers for a fence when one is useful. The end of the progress topic in it becomes a mark.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        buffer, positions = self._buffer, self._reader.positions()
        if self._is_quiet() and buffer.is_fence_reached(positions):
            buffer.forget_fence()  # a new fence shows that there is really nothing new
            self._asked_at = time.monotonic()
        if buffer.wants_fence(positions):
            now, fence = self.now(), self._fence()  # the clock first: a mark must not be newer than its answer
            buffer.fence(fence)
            self._horizon.asked(now, fence[self._progress])
            self.read()  # often the topic was read that far already, and the mark holds at once

    def is_of_use(self, place: Cut, joining: Collection[str]) -> bool:
        """Returns whether a cut at this place, which may be the last one again, says something new."""
        if place.offset > self._last_offset:
            return True
        if self._buffer.is_full:
            return self._buffer.holds_below(place.progress.lsn)
        return not self._was_true or bool(joining) or time.monotonic() - self._cut_at > _QUIET_S

    def is_true(self, place: Cut, joining: Collection[str]) -> bool:
        """Returns whether no record before the cut can have been cleaned away because of a record beyond it.

        The clock proves that without a question. If it does not, a fence does: nothing lies beyond the cut at all.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        now = self.now()
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

    def refuse_set_back(self) -> None:
        """Ends the session if the clock may have proven a cut only because it was set back.

        Raises:
            BeginAnew: it was set back since the session began.
        """
        self.now()
        if self._clock.was_set_back:
            raise_set_back()

    def may_be_untrue(self, place: Cut) -> bool:
        """Returns whether the last cut is so long ago that one which is not true will do."""
        return place.offset > self._last_offset and time.monotonic() - self._cut_at > _PATIENCE_S

    def took(self, place: Cut, is_true: bool) -> None:
        """Notes that the cut is made."""
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
