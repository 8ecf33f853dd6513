"""Finds duplicates exactly: by id within a window of event time, or by position. Pure.

A compacted topic is not a substitute. It drops the older records of a key some time after they were read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from cdc.base.errors import ConfigError


class DuplicateVerdict(Enum):
    """The answers of a ``Deduplicator``."""

    NEW = auto()
    DUPLICATE = auto()
    TOO_LATE = auto()
    """The message is so old that its id may be forgotten, so nobody can tell."""


class Deduplicator:
    """Finds messages of a key with the same id, within a window of event time.

    A message is a duplicate if a new message with its key and id lies at most ``window_ms`` before or after it. The
    verdict is exact for messages that are at most ``lateness_ms`` older than the newest one. Older messages are
    ``TOO_LATE``. Only event times count, not the clock, so a replay leads to the same verdicts.

    As the newest event time advances, ids are forgotten in the order in which they came. So the cost of a message does
    not depend on how many ids are remembered, and memory holds the ids of ``window_ms + lateness_ms``. Make one
    ``Deduplicator`` for each partition, so that the event time of a fast source does not forget ids of a slower one.

    Args:
        window_ms: at least 1.
        lateness_ms: at least 0.

    Raises:
        ConfigError: a number is too small.
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
        """Returns how many ids are remembered."""
        return len(self._times)

    def judge(self, key: Hashable, message_id: Hashable, event_time_ms: int) -> DuplicateVerdict:
        """Judges a message, and remembers its id if it is new."""
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
        """Forgets ids from before a moment. An id that came late is kept until the newer one before it is forgotten."""
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
    """The highest position of each key. Exact for sources that number their changes, however often they repeat them.

    Args:
        known: the positions to go on from, as ``positions`` returned them.
    """

    def __init__(self, known: Mapping[Hashable, Position] | None = None) -> None:
        self._highest: dict[Hashable, Position] = dict(known or {})

    def advance(self, key: Hashable, position: Position) -> bool:
        """Returns whether the position is higher than all earlier ones of the key. If so, it becomes the highest.

        Args:
            key: for instance a record's key, a partition or a source.
            position: an offset, an LSN, an LSN with an ordinal, or anything else that sorts.
        """
        highest = self._highest.get(key)
        if highest is not None and not highest < position:
            return False
        self._highest[key] = position
        return True

    @property
    def positions(self) -> Mapping[Hashable, Position]:
        """The highest position by key. Store it together with your state: in one Kafka transaction, or in one row."""
        return self._highest
