"""Tells what a PostgreSQL snapshot sees: the reconciler's own interpretation of ``pg_current_snapshot()``. Pure.

A snapshot is a set of transactions, not a WAL position. Transactions become visible in another order than their commits
are written, so comparing LSNs would give wrong answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cdc.base.errors import DecodeError

_TEXT: Final = re.compile(r"(\d+):(\d+):((?:\d+(?:,\d+)*)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class VisibleTransactions:
    """A snapshot ``xmin:xmax:xip_list``. https://www.postgresql.org/docs/current/functions-info.html

    It must come from a primary: a standby's ``pg_current_snapshot()`` leaves out transactions that are in progress.

    Attributes:
        xmin: every transaction before this one has ended.
        xmax: no transaction from this one on is visible.
        in_progress: the transactions between the two that had not ended.
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> VisibleTransactions:
        """Parses the server's text.

        Raises:
            DecodeError: the text is not a snapshot.
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
        """Tells whether a committed transaction (64-bit id of the top level) is visible."""
        return xid < self.xmax and xid not in self.in_progress

    def covers(self, other: VisibleTransactions) -> bool:
        """Tells whether every transaction that ``other`` sees is visible here, too."""
        # The other snapshot must not see any id from our xmax up to its own: all of them must be in progress for it.
        beyond = max(other.xmax - self.xmax, 0)
        if beyond != sum(xid >= self.xmax for xid in other.in_progress):
            return False
        return not any(map(other.sees, self.in_progress))
