"""Whether tombstones stay long enough for those who must see them. Pure.

The clock of ``delete.retention.ms`` starts when the cleaner first meets a tombstone, which is not before
``min.compaction.lag.ms``. So a tombstone is sure to be there for the sum of both, and often for much longer. A reader
that is away, or behind, for more than that may miss a delete, and keeps the row for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cdc.base.words import duration
from cdc.contract.compaction import TopicSettings, alter

_MARGIN: Final = 2
"""A window that is not twice as long as what it must cover ends with the first bad day."""
_HOUR_MS: Final = 3_600_000

State: TypeAlias = Literal["broken", "tight", "kept"]


@dataclass(frozen=True, slots=True)
class TombstoneReader:
    """Somebody who must see each tombstone.

    Attributes:
        name: of its group.
        behind_ms: age of the oldest record that it has not read.
        behind: offsets.
    """

    name: str
    behind_ms: int
    behind: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The window, and what it must cover.

    Attributes:
        window_ms: how long a tombstone is sure to be there.
        needed_ms: the longest of the readers' delays and the rebuild.
        whose: who needs so long.
    """

    topic: str
    window_ms: int
    needed_ms: int
    whose: str
    state: State
    text: str
    remedy: str


def budget(topic: str, settings: TopicSettings, readers: Sequence[TombstoneReader], rebuild_ms: int) -> Budget:
    """Compare the window with the slowest reader and with a rebuild."""
    window_ms = settings.tombstone_window_ms
    needs = [(rebuild_ms, "a rebuild"), *((each.behind_ms, each.name) for each in readers)]
    needed_ms, whose = max(needs, key=lambda each: each[0])
    sure = f"a tombstone is sure to be there for {duration(window_ms)}"
    longer = alter(topic, f"delete.retention.ms={max(_MARGIN * needed_ms, _HOUR_MS)}")
    state: State
    if needed_ms >= window_ms:
        state = "broken"
        text = f"{sure}, and {whose} needs {duration(needed_ms)}: deletes may have been missed"
        remedy = f"{longer}; then have {'every reader' if whose == 'a rebuild' else whose} read the topic from its beginning into an empty state"  # noqa: E501
    elif _MARGIN * needed_ms > window_ms:
        state = "tight"
        text = f"{sure}, and {whose} needs {duration(needed_ms)}: less than half is left for an outage"
        remedy = longer
    else:
        state = "kept"
        text = f"{sure}; {whose} needs most, {duration(needed_ms)}: {duration(window_ms - needed_ms)} are left for an outage"  # noqa: E501
        remedy = ""
    return Budget(topic, window_ms, needed_ms, whose, state, text, remedy)
