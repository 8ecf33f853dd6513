"""Follows which topics do not hold their whole table yet, as of a cut.

Theory of operation. A backfill's record precedes the stream's record of the same Kafka transaction in the progress
topic, and says from which LSN on its topic is complete. A cut includes the backfill's record if that lies before the
progress record at which the cut was found. If it says *whole*, the cut must also not lie before its LSN.

When a topic begins anew, the sink may read the new definition before the backfill's record that says so, although the
bridge commits that record first. So the topic counts as incomplete until a cut includes everything that the progress
topic held when the definition was read.

The next session reads on at a cut's offset, and does not see the records before it. The replica's table states hold
what those records said; so does the newest record of a table, if it lies before that offset.

No I/O: callers pass the records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from cdc.base.lsn import LSN
from cdc.contract.record import BackfillProgress
from cdc.kafka.replay.backfills import StoredBackfill
from cdc.kafka.replay.cut import Cut


class _Turn(NamedTuple):
    """A record from which on a topic holds its whole table, or no longer does."""

    offset: int
    lsn: LSN
    topic: str
    whole: bool

    def is_in(self, cut: Cut) -> bool:
        return self.offset < cut.offset and (self.lsn <= cut.progress.lsn or not self.whole)


class LoadingTopics:
    """Follows the backfills' records from cut to cut.

    Args:
        newest: the newest record of each backfill at the start.
        start: offset in the progress topic from which on this session reads.
        exact: topics whose replica tables were exact when the last session ended.
    """

    def __init__(self, newest: Iterable[StoredBackfill], start: int, exact: Collection[str]) -> None:
        self._loading: set[str] = set()
        for each in newest:
            topic = each.progress.topic
            # A record from ``start`` on is read again; until then, the replica's state counts
            is_whole = each.progress.whole if each.offset < start else topic in exact
            if not is_whole:
                self._loading.add(topic)
        self._turns: list[_Turn] = []
        self._emptied: dict[str, int] = {}
        self._newest = dict.fromkeys(self._loading, False)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that were incomplete at the last cut."""
        return frozenset(self._loading)

    def saw(self, progress: BackfillProgress, offset: int) -> None:
        """Take note of a backfill's record that was read."""
        if self._newest.get(progress.topic, True) != progress.whole:
            self._newest[progress.topic] = progress.whole
            self._turns.append(_Turn(offset, progress.lsn, progress.topic, progress.whole))

    def begin_anew(self, topics: Iterable[str], end: int) -> None:
        """Take note of topics that begin anew by their definitions.

        Args:
            topics: their names.
            end: the end of the progress topic, asked for after the definitions were read.
        """
        self._emptied.update(dict.fromkeys(topics, end))

    def at(self, cut: Cut, read_to: int) -> frozenset[str]:
        """Returns the topics that are incomplete at a cut.

        Args:
            cut: the cut; not before the cut of an earlier call.
            read_to: position in the progress topic before which all records were read.
        """
        end = next((i for i, turn in enumerate(self._turns) if not turn.is_in(cut)), len(self._turns))
        for turn in self._turns[:end]:
            if turn.whole:
                self._loading.discard(turn.topic)
            else:
                self._loading.add(turn.topic)
        del self._turns[:end]
        awaited = {turn.topic for turn in self._turns}
        # end - 1 is enough: the last offset may be a transaction marker, which the reader's position need not pass
        self._emptied = {topic: end for topic, end in self._emptied.items() if read_to < end - 1 or topic in awaited}
        return frozenset(self._loading | self._emptied.keys())
