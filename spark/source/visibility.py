"""What a PostgreSQL snapshot sees: the reconciler's own reading of ``pg_current_snapshot()``. Pure.

A snapshot is a set of transactions, not a WAL position: commits become visible in another order than they are written,
so that comparing LSNs with it judges wrongly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cdc.base.errors import DecodeError

_TEXT: Final = re.compile(r"(\d+):(\d+):((?:\d+(?:,\d+)*)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class VisibleTransactions:
    """``xmin:xmax:xip_list``. https://www.postgresql.org/docs/current/functions-info.html

    Of a primary only: a standby's ``pg_current_snapshot()`` leaves out who is still in progress.

    Attributes:
        xmin: every transaction before this one is over.
        xmax: no transaction from this one on is visible.
        in_progress: between the two, those that were not over.
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> VisibleTransactions:
        """Read the server's text.

        Raises:
            DecodeError: not a snapshot.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise DecodeError(f"not a snapshot: {text[:100]!r} (expected xmin:xmax:xip,…)")
        xmin, xmax = int(match[1]), int(match[2])
        in_progress = frozenset(map(int, match[3].split(","))) if match[3] else frozenset()
        if xmin > xmax or not all(xmin <= xid < xmax for xid in in_progress):
            raise DecodeError(f"not a snapshot: {text[:100]!r} has transactions outside of its xmin and xmax")
        return cls(xmin, xmax, in_progress)

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.in_progress)))}"

    def sees(self, xid: int) -> bool:
        """Whether a transaction that committed (64-bit id, of the top level) is visible."""
        return xid < self.xmax and xid not in self.in_progress

    def covers(self, other: VisibleTransactions) -> bool:
        """Whether every transaction that ``other`` sees is visible here too."""
        # Ids that only the other one could see for lying before its xmax: it must not see any of them.
        beyond = max(other.xmax - self.xmax, 0)
        if beyond != sum(xid >= self.xmax for xid in other.in_progress):
            return False
        return not any(map(other.sees, self.in_progress))
