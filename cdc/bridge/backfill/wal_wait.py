"""Waits for a stream that brings nothing: a source at rest keeps the end of its WAL to itself for a while."""

from __future__ import annotations

import time
from typing import Final

from cdc.bridge.backfill.surroundings import Surroundings

_HELD_S: Final = 0.2
"""How long something waits, before the source is asked to write out its WAL."""


class WalWait:
    """Of one kind of work.

    Args:
        around: asks the source.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._since = 0.0

    def begin(self) -> None:
        """Something cannot go on before the stream has come further."""
        self._since = self._since or time.monotonic()

    def end(self) -> None:
        """It could go on."""
        self._since = 0.0

    def attend(self) -> None:
        """Ask the source when it takes long, and again."""
        now = time.monotonic()
        if self._since and now - self._since > _HELD_S:
            self._since = now
            self._around.flush_wal()
