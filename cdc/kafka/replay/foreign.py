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

from cdc.base.lsn import LSN
from cdc.contract.ports import Partition
from cdc.kafka.replay.cut import HeldBack

PATIENCE_S: Final = 10.0
"""A record and its progress are read within one; a pause of this process counts, and so does a slow broker."""
_LATER: Final = 2


class _Seen(NamedTuple):
    """Since when a partition holds this back; the newest progress, and how many came since."""

    held: HeldBack
    since: float
    progress: LSN
    later: int = 0


class ForeignWatch:
    """Looks at what each partition holds back first."""

    def __init__(self) -> None:
        self._seen: dict[Partition, _Seen] = {}

    def look(self, held: Iterable[HeldBack], published: LSN, now: float) -> list[HeldBack]:
        """What is foreign: these records, up to the last that was there when the first was seen for the first time.

        Args:
            held: by partition, where it lies beyond everything that the bridge may have published.
            published: that.
            now: seconds of any clock that only goes on.
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
