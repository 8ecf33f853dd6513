"""Judges whether tombstones stay long enough for everybody who must see them. Pure.

The clock of ``delete.retention.ms`` starts when the cleaner first meets a tombstone, and that is not before
``min.compaction.lag.ms``. So a tombstone stays for at least the sum of both, and often for much longer. A reader that
is away or lags for more than that may miss a delete, and then it keeps the row for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cdc.base.words import duration
from cdc.contract.compaction import TopicSettings, alter

_MARGIN: Final = 2
"""The window should be this many times as long as what it must cover, or one outage is enough to miss a delete."""
_HOUR_MS: Final = 3_600_000

State: TypeAlias = Literal["broken", "tight", "kept"]


@dataclass(frozen=True, slots=True)
class TombstoneReader:
    """A reader that must see each tombstone.

    Attributes:
        name: the name of its group.
        lag_ms: the age of the oldest record that it has not read.
        lag: the number of offsets that it has not read.
    """

    name: str
    lag_ms: int
    lag: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The time for which tombstones stay, and the time that readers need.

    Attributes:
        topic: the topic.
        window_ms: how long a tombstone stays at least.
        needed_ms: the longest of the readers' lags and the time of a rebuild.
        whose: the reader that needs longest, or ``a rebuild``.
        state: ``kept``, ``tight`` when less than half of the window is left, or ``broken``.
        text: the verdict in words.
        remedy: what to do; empty when nothing is.
    """

    topic: str
    window_ms: int
    needed_ms: int
    whose: str
    state: State
    text: str
    remedy: str


def budget(topic: str, settings: TopicSettings, readers: Sequence[TombstoneReader], rebuild_ms: int) -> Budget:
    """Compares the window with the slowest reader and with a rebuild."""
    window_ms = settings.tombstone_window_ms
    needs = [(rebuild_ms, "a rebuild"), *((each.lag_ms, each.name) for each in readers)]
    needed_ms, whose = max(needs, key=lambda each: each[0])
    sure = f"a tombstone is sure to be there for {duration(window_ms)}"
    longer = alter(topic, f"delete.retention.ms={max(_MARGIN * needed_ms, _HOUR_MS)}")
    state: State
    if needed_ms >= window_ms:
        state = "broken"
        text = f"{sure}, and {whose} needs {duration(needed_ms)}: deletes may have been missed"
        remedy = f"{longer}; then have {'every reader' if whose == 'a rebuild' else whose} read the topic from its beginning into an empty state"  # noqa: E501 - one sentence
    elif _MARGIN * needed_ms > window_ms:
        state = "tight"
        text = f"{sure}, and {whose} needs {duration(needed_ms)}: less than half is left for an outage"
        remedy = longer
    else:
        state = "kept"
        text = f"{sure}; {whose} needs most, {duration(needed_ms)}: {duration(window_ms - needed_ms)} are left for an outage"  # noqa: E501 - one sentence
        remedy = ""
    return Budget(topic, window_ms, needed_ms, whose, state, text, remedy)
