"""Waits for a stream that brings nothing: an idle source keeps the end of its WAL to itself for a while."""

from __future__ import annotations

import time
from typing import Final

from cdc.bridge.backfill.surroundings import Surroundings

_HELD_S: Final = 0.2
"""How long something waits before the source is asked to write out its WAL."""


class WalWait:
    """Watches how long one kind of work waits for the stream.

    Args:
        around: asks the source.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._since = 0.0

    def begin(self) -> None:
        """Note that something cannot go on before the stream has come further."""
        self._since = self._since or time.monotonic()

    def end(self) -> None:
        """Note that nothing waits any more."""
        self._since = 0.0

    def attend(self) -> None:
        """Ask the source to write out its WAL if the wait is long, and ask again while it lasts."""
        now = time.monotonic()
        if self._since and now - self._since > _HELD_S:
            self._since = now
            self._around.flush_wal()
