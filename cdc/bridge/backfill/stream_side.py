"""What backfills and repairs ask of the stream: how far it is, and which keys it touches from now on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cdc.base.lsn import LSN
from cdc.bridge.order.touched import Recording, TouchedKeys


class Streamed(Protocol):
    """What is needed of the order engine."""

    @property
    def complete_lsn(self) -> LSN:
        """Everything that committed before this was taken from the stream; some of it may be held."""

    @property
    def settled_lsn(self) -> LSN:
        """Everything that committed before this was handed on."""

    @property
    def holds_records(self) -> bool:
        """Whether something is held."""

    @property
    def unseen(self) -> Iterable[int]:
        """Transactions that were taken and that a snapshot may not see yet."""

    def distrust(self, xids: Iterable[int]) -> None:
        """No snapshot is good enough for a backfill that does not see these transactions."""


class StreamSide:
    """Of one session.

    Args:
        streamed: the order engine.
        touched: where the order engine notes keys.
    """

    def __init__(self, streamed: Streamed, touched: TouchedKeys) -> None:
        self._streamed = streamed
        self._touched = touched

    @property
    def complete_lsn(self) -> LSN:
        """See ``Streamed``."""
        return self._streamed.complete_lsn

    @property
    def settled_lsn(self) -> LSN:
        """See ``Streamed``."""
        return self._streamed.settled_lsn

    @property
    def holds_records(self) -> bool:
        """See ``Streamed``."""
        return self._streamed.holds_records

    def distrust(self, xids: Iterable[int]) -> None:
        """See ``Streamed``."""
        self._streamed.distrust(xids)

    def watch(self, topic: str) -> Recording:
        """Begin to record which keys of a topic are touched, for snapshots that are taken from now on."""
        return self._touched.watch(topic, self._streamed.unseen)

    def watch_anew(self, recording: Recording) -> Recording:
        """End this recording and begin another one of its topic, for what the topic holds now."""
        self._touched.forget(recording)
        return self._touched.watch(recording.topic, ())

    def forget(self, recording: Recording) -> None:
        """End recording, unless it has ended."""
        self._touched.forget(recording)
