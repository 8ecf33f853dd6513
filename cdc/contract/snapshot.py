"""``pg_current_snapshot()``: which transactions a reading of the source saw."""

from __future__ import annotations

from typing import NamedTuple


class Snapshot(NamedTuple):
    """Ids are of 64 bits. https://www.postgresql.org/docs/current/functions-info.html"""

    xmax: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read ``xmin:xmax:xip_list``."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())

    def sees(self, xid: int) -> bool:
        """Whether a transaction that committed is visible."""
        return xid < self.xmax and xid not in self.running
