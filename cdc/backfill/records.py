"""What is on record of each table's backfill, and which of them still have rows to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from cdc.record import BackfillProgress


class Records:
    """The newest record of each table.

    The few that are under way are found without looking at all of them: that is asked with each read of the stream, and
    there may be thousands of tables.

    Args:
        stored: by table, as the last session left them.
    """

    def __init__(self, stored: Mapping[str, BackfillProgress]) -> None:
        self._all: dict[str, BackfillProgress] = {}
        self._running: dict[str, None] = {}
        self._waiting: dict[str, None] = {}
        for table, record in stored.items():
            self[table] = record

    def __getitem__(self, table: str) -> BackfillProgress:
        return self._all[table]

    def __contains__(self, table: str) -> bool:
        return table in self._all

    def __setitem__(self, table: str, record: BackfillProgress) -> None:
        self._all[table] = record
        for state, tables in (("running", self._running), ("waiting", self._waiting)):
            if record.state == state:
                tables[table] = None
            else:
                tables.pop(table, None)

    def get(self, table: str) -> BackfillProgress | None:
        """The record of a table, if there is one."""
        return self._all.get(table)

    @property
    def are_to_be_read(self) -> bool:
        """Whether a table is under way or waits for its turn; a paused one does not."""
        return bool(self._running or self._waiting)

    def to_be_read(self) -> Iterator[BackfillProgress]:
        """Those, the ones that were begun first; ask anew when one of them has changed."""
        return (self._all[table] for table in chain(self._running, self._waiting))
