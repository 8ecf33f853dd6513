"""What backfills and repairs ask of the stream: how far it is, and which keys it touches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cdc.base.lsn import LSN
from cdc.bridge.order.touched import Recording, TouchedKeys


class Streamed(Protocol):
    """What is needed from the order engine."""

    @property
    def complete_lsn(self) -> LSN:
        """The LSN before which everything that committed was taken from the stream; some of it may be held."""

    @property
    def settled_lsn(self) -> LSN:
        """The LSN before which everything that committed was handed on."""

    @property
    def holds_records(self) -> bool:
        """Whether records are held."""

    @property
    def unseen(self) -> Iterable[int]:
        """Transactions that were taken, and that a snapshot may not see yet."""

    def distrust(self, xids: Iterable[int]) -> None:
        """Reject, for backfills, every snapshot that does not see these transactions."""


class StreamSide:
    """The stream, as backfills and repairs of one session see it.

    Args:
        streamed: the order engine.
        touched: takes the keys that the order engine notes.
    """

    def __init__(self, streamed: Streamed, touched: TouchedKeys) -> None:
        self._streamed = streamed
        self._touched = touched

    @property
    def complete_lsn(self) -> LSN:
        """The LSN before which the engine has taken everything that committed; some of it may be held."""
        return self._streamed.complete_lsn

    @property
    def settled_lsn(self) -> LSN:
        """The LSN before which the engine has handed on everything that committed."""
        return self._streamed.settled_lsn

    @property
    def holds_records(self) -> bool:
        """Whether the engine holds records."""
        return self._streamed.holds_records

    def distrust(self, xids: Iterable[int]) -> None:
        """Reject, for backfills, every snapshot that does not see these transactions."""
        self._streamed.distrust(xids)

    def watch(self, topic: str) -> Recording:
        """Begin to record which keys of a topic are touched, for snapshots that are taken after this."""
        return self._touched.watch(topic, self._streamed.unseen)

    def watch_anew(self, recording: Recording) -> Recording:
        """End this recording, and begin another one of the same topic, for a reading of what the topic holds now."""
        self._touched.forget(recording)
        return self._touched.watch(recording.topic, ())

    def forget(self, recording: Recording) -> None:
        """End a recording, unless it has ended."""
        self._touched.forget(recording)
