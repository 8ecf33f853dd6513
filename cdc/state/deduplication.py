"""What was seen already: by id within a window of event time, or by position, each of them exact. Pure.

Neither is a compacted topic, which keeps the latest record of a key some time after the others were read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from cdc.base.errors import ConfigError


class DuplicateVerdict(Enum):
    """What a ``Deduplicator`` says of a message."""

    NEW = auto()
    DUPLICATE = auto()
    TOO_LATE = auto()
    """So old that its id may have been forgotten: nobody can say."""


class Deduplicator:
    """Messages of a key that have the same id, within a window of event time.

    A message is a duplicate when a new one of its key and id lies at most ``window_ms`` from it, before or after. That
    is exact for every message that is not more than ``lateness_ms`` older than the newest one; an older one is
    ``TOO_LATE``. Clocks on the wall play no part, so a replay comes to the same verdicts.

    Ids are forgotten in the order in which they came, as the newest event time advances. So a message costs the same
    however many are remembered, and memory holds the ids of ``window_ms + lateness_ms``. Make one for each partition:
    the event time of one source then forgets no ids of a slower one.

    Args:
        window_ms: at least 1.
        lateness_ms: at least 0.

    Raises:
        ConfigError: they are not.
    """

    def __init__(self, window_ms: int, *, lateness_ms: int = 0) -> None:
        if window_ms < 1 or lateness_ms < 0:
            raise ConfigError(
                f"a window of {window_ms} ms with messages late by {lateness_ms} ms remembers nothing",
                remedy="give a window of at least 1 ms, and a lateness of at least 0 ms",
            )
        self._window_ms, self._lateness_ms = window_ms, lateness_ms
        self._newest: int | None = None
        self._times: dict[tuple[Hashable, Hashable], list[int]] = {}
        self._expiry: deque[tuple[tuple[Hashable, Hashable], int]] = deque()

    def __len__(self) -> int:
        """How many ids are remembered."""
        return len(self._times)

    def judge(self, key: Hashable, message_id: Hashable, event_time_ms: int) -> DuplicateVerdict:
        """Judge a message, and remember it when it is new."""
        if self._newest is None or event_time_ms > self._newest:
            self._newest = event_time_ms
            self._forget(event_time_ms - self._lateness_ms - self._window_ms)
        elif event_time_ms < self._newest - self._lateness_ms:
            return DuplicateVerdict.TOO_LATE
        identity = key, message_id
        times = self._times.get(identity)
        if times is not None and any(abs(event_time_ms - each) <= self._window_ms for each in times):
            return DuplicateVerdict.DUPLICATE
        self._times.setdefault(identity, []).append(event_time_ms)
        self._expiry.append((identity, event_time_ms))
        return DuplicateVerdict.NEW

    def _forget(self, before_ms: int) -> None:
        """Each id is appended and removed once. One that came late may wait behind a newer one, and no longer."""
        expiry = self._expiry
        while expiry and expiry[0][1] < before_ms:
            identity, time_ms = expiry.popleft()
            times = self._times[identity]
            times.remove(time_ms)
            if not times:
                del self._times[identity]


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Position = TypeVar("Position", bound=_Ordered)


class HighWater(Generic[Position]):
    """The highest position of each key: exact for sources that number their changes, however often they repeat them.

    Args:
        known: to go on from, as ``positions`` gave them.
    """

    def __init__(self, known: Mapping[Hashable, Position] | None = None) -> None:
        self._highest: dict[Hashable, Position] = dict(known or {})

    def advance(self, key: Hashable, position: Position) -> bool:
        """Whether the position lies above all earlier ones of the key, which it then heads.

        Args:
            key: a record's key, a partition, a source.
            position: an offset, an LSN, or an LSN with an ordinal: whatever sorts.
        """
        highest = self._highest.get(key)
        if highest is not None and not highest < position:
            return False
        self._highest[key] = position
        return True

    @property
    def positions(self) -> Mapping[Hashable, Position]:
        """By key, to be kept with the state that they belong to: in the same Kafka transaction, or the same row."""
        return self._highest
