"""Tells from the records of the progress topic what became of a request: what is under way, how fast, how it ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from cdc.bridge.backfill.pace import remaining_rows, share
from cdc.contract.backfill import is_backfill_key, parse_backfill, request_key
from cdc.contract.ports import StoredRecord
from cdc.contract.record import BackfillProgress

_WINDOW_S: Final = 10.0
"""The span over which rows per second are measured. Over less, the rate jumps with each chunk; over more, it is slow to
follow a change."""


class Following:
    """Follows backfills that somebody waits for.

    Args:
        request: the id of a request that we wrote; None to follow what is under way already.
        requests: for each table, the request whose backfill is meant; None for the first one that is seen.
    """

    def __init__(self, request: str | None, requests: Mapping[str, str | None]) -> None:
        self._request = request
        self._requests = dict(requests)
        self._marks: dict[str, deque[tuple[int, int]]] = {table: deque() for table in requests}
        self.progress: dict[str, BackfillProgress] = {}
        self.replaced: set[str] = set()
        """Tables whose backfill was replaced by another request's."""
        self.is_taken = request is None

    @property
    def tables(self) -> tuple[str, ...]:
        """All tables that are followed, in the order in which they were asked for."""
        return tuple(self._requests)

    @property
    def unseen(self) -> tuple[str, ...]:
        """Tables that the bridge has not written about yet."""
        return tuple(each for each in self._requests if each not in self.progress and each not in self.replaced)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return not self.unseen and all(
            table in self.replaced or not self.progress[table].is_open for table in self._requests
        )

    def saw(self, records: Iterable[StoredRecord]) -> None:
        """Take records of the progress topic, in order."""
        for record in records:
            if self._request is not None and record.key == request_key(self._request):
                self.is_taken = self.is_taken or record.value is None
            elif is_backfill_key(record.key) and record.value is not None:
                self.take(parse_backfill(record.value))

    def take(self, progress: BackfillProgress) -> None:
        """Take a backfill's newest record."""
        table = progress.table
        if table not in self._requests or table in self.replaced:
            return
        if self._requests[table] is None:
            self._requests[table] = progress.request
        if progress.request != self._requests[table]:
            # An older backfill may still be recorded until our request is taken
            if table in self.progress:
                self.replaced.add(table)
            return
        self.is_taken = True
        self.progress[table] = progress
        marks = self._marks[table]
        marks.append((progress.updated_at, progress.rows))
        while len(marks) > 2 and marks[-1][0] - marks[1][0] >= _WINDOW_S * 1e6:
            marks.popleft()

    def rate(self, table: str) -> float | None:
        """Returns the present rows per second; None if nothing is under way, or there is nothing to measure yet."""
        marks, progress = self._marks[table], self.progress.get(table)
        if progress is None or progress.state != "running" or len(marks) < 2:
            return None
        (then, before), (now, rows) = marks[0], marks[-1]
        return (rows - before) / (now - then) * 1e6 if now > then else None

    @property
    def total_rate(self) -> float:
        """The rows per second of all tables together."""
        return sum(self.rate(table) or 0.0 for table in self._requests)

    @property
    def seconds_left(self) -> float | None:
        """The seconds left for all that is not paused, at the present rate; None when nobody can tell."""
        rate = self.total_rate
        left = sum(remaining_rows(each) for each in self.progress.values() if each.state != "paused")
        return left / rate if rate and not self.unseen else None

    @property
    def share(self) -> float:
        """The share of all rows that is read, from 0 to 1."""
        known = self.progress.values()
        weights = sum(max(each.estimated_rows, 1) for each in known)
        done = sum(max(each.estimated_rows, 1) * share(each) for each in known)
        return done / weights * len(known) / len(self._requests) if weights else 0.0
