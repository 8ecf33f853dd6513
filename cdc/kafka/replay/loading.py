"""Which topics do not hold their whole table yet, as of a cut.

Theory of operation. A backfill's record lies in the progress topic before the stream's record of the same Kafka
transaction, and says from which LSN on its topic is complete. So a cut includes it when it lies before the record that
the cut was found by, and, where it says *whole*, when the cut is not before that LSN.

A topic that begins anew is read by its new definition, which may be read before the record that says so. The bridge
commits that record first. So the topic is incomplete until a cut includes all that the progress topic held by then.

A cut's offset is where the next session reads on, so records before it are not read again. What they said is in the
replica's table states; the newest record of a table, when it lies before that offset, says it too.

No I/O: records are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from cdc.base.lsn import LSN
from cdc.contract.record import BackfillProgress
from cdc.kafka.replay.backfills import StoredBackfill
from cdc.kafka.replay.cut import Cut


class _Turn(NamedTuple):
    """From this record on a topic holds its whole table, or does not any more."""

    offset: int
    lsn: LSN
    topic: str
    whole: bool

    def is_in(self, cut: Cut) -> bool:
        return self.offset < cut.offset and (self.lsn <= cut.progress.lsn or not self.whole)


class LoadingTopics:
    """Follows the backfills' records beside the cuts.

    Args:
        newest: the newest record of each backfill at the beginning.
        start: offset in the progress topic from which records will be seen.
        exact: topics whose replica tables were exact when the last session ended.
    """

    def __init__(self, newest: Iterable[StoredBackfill], start: int, exact: Collection[str]) -> None:
        self._loading: set[str] = set()
        for each in newest:
            topic = each.progress.topic
            # A newer record will be seen again; until then the replica says it best
            is_whole = each.progress.whole if each.offset < start else topic in exact
            if not is_whole:
                self._loading.add(topic)
        self._turns: list[_Turn] = []
        self._emptied: dict[str, int] = {}
        self._newest = dict.fromkeys(self._loading, False)

    @property
    def topics(self) -> frozenset[str]:
        """Those that were incomplete at the last cut."""
        return frozenset(self._loading)

    def saw(self, progress: BackfillProgress, offset: int) -> None:
        """A backfill's record was read."""
        if self._newest.get(progress.topic, True) != progress.whole:
            self._newest[progress.topic] = progress.whole
            self._turns.append(_Turn(offset, progress.lsn, progress.topic, progress.whole))

    def begin_anew(self, topics: Iterable[str], end: int) -> None:
        """Definitions were read by which these topics begin anew; ``end`` is the progress topic's, asked afterwards."""
        self._emptied.update(dict.fromkeys(topics, end))

    def at(self, cut: Cut, read_to: int) -> frozenset[str]:
        """Topics that are incomplete at a cut.

        Args:
            cut: not before an earlier one.
            read_to: position in the progress topic; all its records before that were seen.
        """
        end = next((i for i, turn in enumerate(self._turns) if not turn.is_in(cut)), len(self._turns))
        for turn in self._turns[:end]:
            if turn.whole:
                self._loading.discard(turn.topic)
            else:
                self._loading.add(turn.topic)
        del self._turns[:end]
        awaited = {turn.topic for turn in self._turns}
        # The last offset may be a marker, which a position need not pass
        self._emptied = {topic: end for topic, end in self._emptied.items() if read_to < end - 1 or topic in awaited}
        return frozenset(self._loading | self._emptied.keys())
