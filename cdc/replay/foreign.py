"""Records that are held back for a cut that does not come: the bridge has gone on, and is not there. Pure.

A record lies before some progress that is on its way, or, if it is of another program, before none: another system's
LSNs may be ahead for years. Until then its table is not what the source holds, and must not be called so.

The bridge's own records are covered by the progress of their Kafka transaction, or by the one behind it. With
``delivery: idempotent`` they may be ahead of it, but not of what a later one says was sent: the first that is read
after a record may have been drawn up before it was sent, the second was drawn up behind that. So what is still beyond
after two more, and some seconds, is foreign. After a failover it may be of the timeline that was lost. It counts again
when the progress reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from cdc.lsn import LSN
from cdc.ports import Partition, StoredRecord

PATIENCE_S: Final = 10.0
"""A record and its progress are read within one; a pause of this process counts, and so does a slow broker."""
_LATER: Final = 2


class _Held(NamedTuple):
    """Since when a record is the first that its partition holds back; the newest progress, and how many came since."""

    offset: int
    since: float
    progress: LSN
    later: int = 0


class ForeignWatch:
    """Looks at the first record that each partition holds back.

    Attributes:
        topics: that hold back a foreign record now.
    """

    def __init__(self) -> None:
        self._held: dict[Partition, _Held] = {}
        self._told: set[tuple[str, int, int]] = set()
        self.topics: frozenset[str] = frozenset()

    def look(self, held: Iterable[StoredRecord], published: LSN, now: float) -> list[StoredRecord]:
        """What is found for the first time.

        Args:
            held: of each partition the first record beyond everything that the bridge may have published.
            published: that.
            now: seconds of any clock that only goes on.
        """
        before, self._held = self._held, {}
        foreign, found = set(), []
        for record in held:
            partition = record.topic, record.partition
            known = before.get(partition)
            if known is None or known.offset != record.offset:
                known = _Held(record.offset, now, published)
            elif published != known.progress:
                known = known._replace(progress=published, later=known.later + 1)
            self._held[partition] = known
            if now - known.since < PATIENCE_S or known.later < _LATER:
                continue
            foreign.add(record.topic)
            place = record.topic, record.partition, record.offset
            if place not in self._told:
                self._told.add(place)
                found.append(record)
        self.topics = frozenset(foreign)
        return found
