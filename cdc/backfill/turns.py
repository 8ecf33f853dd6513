"""Whose portion is published next: a table that is ahead of its rate waits aside, not before the others."""

from __future__ import annotations

from collections import deque

from cdc.backfill.job import BackfillJob
from cdc.backfill.readers import ChunkTask, Portion


class Aside:
    """Portions of tables that are ahead of their rate, in order for each table.

    It stays small: while a table has something here no more of it is read, and before that the chunks that all readers
    take at once, each of about a second.
    """

    def __init__(self) -> None:
        self._portions: deque[Portion] = deque()

    def keeps(self, portion: Portion) -> bool:
        """Take it, if its table has to wait; else it may go on."""
        if not self.holds(portion.task.owner) and not _is_ahead(portion.task):
            return False
        self._portions.append(portion)
        return True

    def take(self) -> Portion | None:
        """The first portion whose table may go on by now."""
        waiting: set[int] = set()
        for portion in self._portions:
            owner = id(portion.task.owner)
            if owner not in waiting and not _is_ahead(portion.task):
                self._portions.remove(portion)
                return portion
            waiting.add(owner)
        return None

    def holds(self, owner: object) -> bool:
        """Whether something of this table waits, behind which its other portions have to stay."""
        return any(each.task.owner is owner for each in self._portions)


def _is_ahead(task: ChunkTask) -> bool:
    owner = task.owner
    return isinstance(owner, BackfillJob) and owner.is_ahead_of_its_rate
