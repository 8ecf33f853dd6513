"""Which cuts are true although a cleaner works on the topics: those it cannot have reached.

Theory of operation. A topic is compacted: of a key's records only the newest stays for ever. A reader that is far
behind finds the older ones gone, and what it holds at a position of the past is not what the table held then. A cut at
X is true when nothing that lies before X was erased by a record at or beyond X before it was read.

A *mark* says that at a moment T nothing at or beyond an LSN P was published. The cleaner leaves a record alone until it
is ``min.compaction.lag.ms`` old. So with P at or before X, and less than that time gone since T, no record at or beyond
X can have erased anything yet. A reader that follows the stream has a mark that is younger than a second; one that
joins late has the mark of its own beginning, which proves no cut but those beyond the end of then.

Marks cost a question to the brokers, where the progress topic ends, and an answer that comes by itself: what was
published until then, once the progress topic is read up to there. Where rows may be ahead of the progress, more was
published than it covers, and it says up to where (``apply.cut_judge``).

The same mark says for how long a reader was away: what was published since may include tombstones, and those are kept
for ``delete.retention.ms`` only, counted from when the cleaner first meets them.

It is assumed that the clocks of bridge, brokers and sink agree, and that the bridge ends its Kafka transactions, within
``MARGIN_S``.

No I/O, no clock: moments are handed in, as seconds since 1970.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cdc.base.lsn import LSN
from cdc.contract.gaps import published_until
from cdc.contract.ports import TopicFacts
from cdc.contract.record import Progress

MARGIN_S: Final = 10.0
SHORT_LAG_S: Final = 30.0
"""With a shorter ``min.compaction.lag.ms`` a reader that stops for twenty seconds, or less, proves no cut until it has
caught up with what was the end by then: a restart takes as long, and so does a large transaction."""
_LEAST_ABSENCE_S: Final = 60.0
"""With shorter retention a pause of the reader could not be told from an absence, and it would never end rebuilding."""


class Mark(NamedTuple):
    """At ``at``, nothing at or beyond ``lsn`` was published."""

    at: float
    lsn: LSN


def published_at_most(progress: Progress) -> LSN:
    """Behind every position that a record could have when this progress was drawn up."""
    until = published_until(progress)
    return until if progress.lead is None else max(until, LSN(progress.lead.sent + 1))


class Horizon:
    """Follows the marks beside the cuts.

    Args:
        first: what is known at the beginning.
        lag_s: the shortest ``min.compaction.lag.ms`` of the topics.
    """

    def __init__(self, first: list[Mark], lag_s: float = 0.0) -> None:
        self._marks = sorted(first)
        self._lag_s = lag_s
        self._asked: tuple[float, int] | None = None

    def bound(self, lag_s: float) -> None:
        """The topics' shortest ``min.compaction.lag.ms``."""
        self._lag_s = lag_s

    def add(self, mark: Mark) -> None:
        """What was found out otherwise."""
        self._marks.append(mark)

    def asked(self, at: float, end: int) -> None:
        """The brokers said that the progress topic ends there; answers to earlier questions still count."""
        if self._asked is None:
            self._asked = (at, end)

    def read(self, position: int, until: LSN) -> None:
        """The progress topic was read up to a position, and says that everything up to ``until`` is published."""
        if self._asked is not None and position >= self._asked[1]:
            self._marks.append(Mark(self._asked[0], until))
            self._asked = None

    def newest(self, lsn: LSN) -> Mark | None:
        """The newest mark that speaks of ``lsn``, which never falls; older ones are forgotten."""
        speaking = [place for place, mark in enumerate(self._marks) if mark.lsn <= lsn]
        if not speaking:
            return None
        del self._marks[: speaking[-1]]
        return self._marks[0]

    def proves(self, lsn: LSN, now: float) -> bool:
        """Whether a cut at ``lsn``, all read by now, is true by the clock alone."""
        mark = self.newest(lsn)
        return mark is not None and now - mark.at < self._lag_s - MARGIN_S


def longest_absence_s(facts: TopicFacts) -> float:
    """For how long a reader may have been away, or be on its way, and miss no tombstone."""
    return max(facts.compaction_lag_s + facts.delete_retention_s - MARGIN_S, _LEAST_ABSENCE_S)


def why_anew(stored: dict[int, int], topic_id: str, facts: TopicFacts) -> str | None:
    """Why reading on at stored offsets would be wrong; None when it is right.

    Args:
        stored: by partition, the first offset that is not applied.
        topic_id: of the topic that they are of.
        facts: the topic now.
    """
    if not stored:
        return None
    if topic_id != facts.topic_id:
        return "its topic was made anew"
    for number, offset in stored.items():
        if number >= len(facts.ends) or offset > facts.ends[number]:
            return f"its topic lost records: partition {number} does not reach to offset {offset} any more"
        if offset < facts.low[number]:
            return f"records of its topic were deleted: partition {number} begins at offset {facts.low[number]} now"
    return None
