"""Finds foreign records: the bridge has published more, but its progress does not reach them. Pure.

Every record of the bridge is soon covered by a progress. A record of another program may not be: its LSNs may be years
ahead. As long as such a record is held back, its table does not hold what the source holds, and must not be called
exact.

The bridge's own records are covered by the progress of their Kafka transaction, or by the one after it. With
``delivery: idempotent`` they may be ahead of the progress, but not ahead of what a later one says was sent. The first
progress that is read after a record may have been drawn up before the record was sent; the second was drawn up after
that. So a record that still lies beyond after two more progresses, and ten seconds, is foreign. After a failover it may
be from the lost timeline. It counts again when the progress reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from cdc.base.lsn import LSN
from cdc.contract.ports import Partition
from cdc.kafka.replay.cut import HeldBack

PATIENCE_S: Final = 10.0
"""How long a record may lie beyond the progress. Both are read within a second normally; the rest allows for a pause of
this process and for slow brokers."""
_LATER: Final = 2
"""How many newer progresses must have been read since; the first may have been drawn up before the record was sent."""


class _Seen(NamedTuple):
    """What a partition holds back, since when, the newest progress, and how many newer ones were read since."""

    held: HeldBack
    since: float
    progress: LSN
    later: int = 0


class ForeignWatch:
    """Watches the first record that each partition holds back, and tells which ones are foreign."""

    def __init__(self) -> None:
        self._seen: dict[Partition, _Seen] = {}

    def look(self, held: Iterable[HeldBack], published: LSN, now: float) -> list[HeldBack]:
        """Returns the foreign records, up to the last one that was held back when the first was seen first.

        Args:
            held: of each partition what it holds back, if that lies beyond everything the bridge may have published.
            published: the LSN up to which the bridge may have published.
            now: seconds of a monotonic clock.
        """
        before, self._seen = self._seen, {}
        found = []
        for each in held:
            partition = each.record.topic, each.record.partition
            known = before.get(partition)
            if known is None or known.held.record.offset != each.record.offset:
                known = _Seen(each, now, published)
            elif published != known.progress:
                known = known._replace(progress=published, later=known.later + 1)
            self._seen[partition] = known
            if now - known.since >= PATIENCE_S and known.later >= _LATER:
                found.append(known.held)
        return found
