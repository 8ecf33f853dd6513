"""What goes on beside the stream, as the loop sees it: backfills and repairs. Repairs go first."""

from __future__ import annotations

from collections.abc import Callable

from cdc.base.lsn import LSN
from cdc.bridge.backfill.repair_work import Repairs
from cdc.bridge.backfill.work import Backfill
from cdc.bridge.order.demand import Demand


class BesideStream:
    """Backfills and repairs of one session, as one. Repairs go first: they are small, and somebody waits for them.

    Args:
        backfill: the backfills of all tables.
        repairs: the repairs of single keys.
    """

    def __init__(self, backfill: Backfill, repairs: Repairs) -> None:
        self._backfill = backfill
        self._repairs = repairs

    @property
    def is_active(self) -> bool:
        """Whether ``step`` has something to do, now or soon."""
        return self._repairs.is_active or self._backfill.is_active

    @property
    def wants_flush(self) -> bool:
        """Whether something waits to be written although no row was published."""
        return self._backfill.wants_flush

    def demand(self, demand: Demand) -> None:
        """Take up a demand of the bridge itself. It is recorded with the next Kafka commit, whatever that holds."""
        self._backfill.demand(demand)

    def begin_anew(self, demand: Demand, topic: str) -> int:
        """Take up the backfill of a table whose topic is emptied first. Returns the ordinal of the tombstones."""
        return self._backfill.begin_anew(demand, topic)

    def attend(self) -> None:
        """Take up what was asked for since the last call."""
        self._backfill.attend()
        self._repairs.attend()

    def step(self, commit: Callable[[], None]) -> int:
        """Publish a portion. Returns the bytes produced. Call it only between source transactions.

        Args:
            commit: commits the Kafka transaction; called when a backfill needs to know what is committed.
        """
        return self._repairs.step() or self._backfill.step(commit)

    def flush(self, lsn: LSN) -> None:
        """Record how far backfills are. Repairs need no such record: theirs is written together with their rows."""
        self._backfill.flush(lsn)

    def close(self) -> None:
        """End the threads."""
        self._repairs.close()
        self._backfill.close()
