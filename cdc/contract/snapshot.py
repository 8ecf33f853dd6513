"""The value of ``pg_current_snapshot()``: which transactions a read of the source saw."""

from __future__ import annotations

from typing import NamedTuple


class Snapshot(NamedTuple):
    """A snapshot, with 64-bit transaction ids. https://www.postgresql.org/docs/current/functions-info.html"""

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Parse ``xmin:xmax:xip_list``."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())

    def sees(self, xid: int) -> bool:
        """Whether a committed transaction is visible in the snapshot."""
        return xid < self.xmax and xid not in self.running
