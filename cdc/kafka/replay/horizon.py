"""Decides which cuts are true although Kafka compacts the topics: those that the cleaner cannot have affected.

Theory of operation. Compaction keeps only the newest record of each key. A reader that lags far no longer finds the
older ones, so what it holds at a position in the past is not what the table held then. A cut at X is true if no record
before X was erased, by a record at or beyond X, before the reader had read it.

A *mark* says that at a moment T nothing at or beyond an LSN P was published. The cleaner leaves a record alone until
that is ``min.compaction.lag.ms`` old. So if P is at or before X, and less than that time has passed since T, no record
at or beyond X can have erased anything yet. A reader that follows the stream has a mark that is less than a second old.
A reader that joins late has the mark of its own start, which proves only cuts beyond what was published by then.

A mark costs one question to the brokers: where does the progress topic end? The answer to "what was published by then?"
comes by itself once the progress topic is read up to that end. With rows ahead of the progress, more was published than
the progress covers; the progress says up to where (``apply.cut_judge``).

The same mark says how long a reader was away. Records that were published since may include tombstones, which Kafka
keeps only for ``delete.retention.ms`` after the cleaner first meets them.

This assumes that the clocks of bridge, brokers and sink agree within ``MARGIN_S``, and that the bridge ends its Kafka
transactions within that time. A clock that is set back makes each mark look younger than it is; ``ClockWatch`` notices
that, and a new session begins without marks.

No I/O, no clock: callers pass the time as seconds since 1970.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from cdc.base.lsn import LSN
from cdc.contract.gaps import published_until
from cdc.contract.ports import TopicFacts
from cdc.contract.record import Progress

MARGIN_S: Final = 10.0
"""Allowance for clocks that disagree and for Kafka transactions under way."""
SHORT_LAG_S: Final = 30.0
"""A ``min.compaction.lag.ms`` below this is short. A reader that then pauses for twenty seconds or less, as for a
restart or a large transaction, cannot prove a cut until it has caught up with the end that the topics had by then."""
_LEAST_ABSENCE_S: Final = 60.0
"""The shortest absence that counts. If tombstones are kept for less, any pause would count as an absence, and the sink
would rebuild for ever."""
_SET_BACK_S: Final = 1.0
"""A clock that goes back by more was set. The margin allows for less."""


class Mark(NamedTuple):
    """The fact that nothing at or beyond ``lsn`` was published at the moment ``at``."""

    at: float
    lsn: LSN


def published_at_most(progress: Progress) -> LSN:
    """Returns an LSN past every record that could exist when this progress was drawn up."""
    until = published_until(progress)
    return until if progress.lead is None else max(until, LSN(progress.lead.sent + 1))


class Horizon:
    """Collects marks, and proves cuts with them.

    Args:
        first: the marks known at the start.
        lag_s: the shortest ``min.compaction.lag.ms`` of the topics, in seconds.
    """

    def __init__(self, first: list[Mark], lag_s: float = 0.0) -> None:
        self._marks = sorted(first)
        self._lag_s = lag_s
        self._asked: tuple[float, int] | None = None

    def bound(self, lag_s: float) -> None:
        """Set the shortest ``min.compaction.lag.ms`` of the topics, in seconds."""
        self._lag_s = lag_s

    def add(self, mark: Mark) -> None:
        """Add a mark that was found in another way."""
        self._marks.append(mark)

    def asked(self, at: float, end: int) -> None:
        """Take note that the progress topic ended at ``end`` at the moment ``at``.

        Ignored while an earlier question waits for its answer, so that questions cannot put off every mark.
        """
        if self._asked is None:
            self._asked = (at, end)

    def read(self, position: int, until: LSN) -> None:
        """Take note that the progress topic, read up to ``position``, says that all before ``until`` is published."""
        if self._asked is not None and position >= self._asked[1]:
            self._marks.append(Mark(self._asked[0], until))
            self._asked = None

    def newest(self, lsn: LSN) -> Mark | None:
        """Returns the newest mark at or before ``lsn`` and forgets older ones, because ``lsn`` never falls."""
        speaking = [place for place, mark in enumerate(self._marks) if mark.lsn <= lsn]
        if not speaking:
            return None
        del self._marks[: speaking[-1]]
        return self._marks[0]

    def proves(self, lsn: LSN, now: float) -> bool:
        """Whether the clock alone proves a cut at ``lsn`` whose records have all been read by ``now``."""
        mark = self.newest(lsn)
        return mark is not None and now - mark.at < self._lag_s - MARGIN_S


class ClockWatch:
    """Notices that somebody has set the clock back, if every moment that counts passes through it.

    The monotonic clock keeps its rate then. A machine that slept looks like a clock that was set ahead, and its marks
    are as old as they look.

    Attributes:
        was_set_back: a moment that was noted may seem younger than it is.
    """

    def __init__(self) -> None:
        self._ahead = -math.inf
        self.was_set_back = False

    def note(self, wall: float, monotonic: float) -> float:
        """Compares the clocks.

        Args:
            wall: seconds since 1970.
            monotonic: seconds of a clock that nobody sets.

        Returns:
            ``wall``
        """
        self._ahead = max(self._ahead, wall - monotonic)
        self.was_set_back |= wall - monotonic < self._ahead - _SET_BACK_S
        return wall


def longest_absence_s(facts: TopicFacts) -> float:
    """Returns for how many seconds a reader may be away, or on its way to the end, without missing a tombstone."""
    return max(facts.compaction_lag_s + facts.delete_retention_s - MARGIN_S, _LEAST_ABSENCE_S)


def why_anew(stored: dict[int, int], topic_id: str, facts: TopicFacts) -> str | None:
    """Returns why it would be wrong to read on at stored offsets; None if it is right.

    Args:
        stored: by partition, the first offset that is not applied.
        topic_id: the id of the topic to which the offsets belong.
        facts: the topic now.
    """
    if not stored:
        return None
    if topic_id != facts.topic_id:
        return "its topic was recreated"
    for number, offset in stored.items():
        if number >= len(facts.ends) or offset > facts.ends[number]:
            return f"its topic lost records: partition {number} no longer reaches offset {offset}"
        if offset < facts.low[number]:
            return f"records of its topic were deleted: partition {number} now begins at offset {facts.low[number]}"
    return None
