"""Holds backfills and repairs back until the stream has passed everything that the topics held at the start.

Before that, the topics hold rows from the stream's future. A backfill's rows would get positions before those of newer
rows, and a sweep would judge keys by them.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc.base.lsn import LSN
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.engine import Engine
from cdc.bridge.sides import BackfillPort


class AfterRepeats:
    """A ``BackfillPort`` that publishes nothing before the stream has passed ``newest``.

    Args:
        beside: backfills and repairs.
        engine: tells where the stream is.
        newest: the greatest commit LSN in the topics at the start.
    """

    def __init__(self, beside: BackfillPort, engine: Engine, newest: LSN) -> None:
        self._beside = beside
        self._engine = engine
        self._newest = newest

    @property
    def is_active(self) -> bool:
        """Whether ``step`` has something to do, and may do it."""
        return self._engine.settled_lsn > self._newest and self._beside.is_active

    @property
    def wants_flush(self) -> bool:
        """Whether a record waits to be written although no row was published."""
        return self._beside.wants_flush

    def demand(self, demand: Demand) -> None:
        """Take up a demand of the bridge itself."""
        self._beside.demand(demand)

    def begin_anew(self, demand: Demand, topic: str) -> int:
        """Take up the backfill of a table whose topic is emptied first. Returns the ordinal of the tombstones."""
        return self._beside.begin_anew(demand, topic)

    def attend(self) -> None:
        """Take up new work."""
        self._beside.attend()

    def step(self, commit: Callable[[], None]) -> int:
        """Publish a portion, if its time has come. Returns the bytes produced."""
        return self._beside.step(commit) if self.is_active else 0

    def flush(self, lsn: LSN) -> None:
        """Record how far backfills are."""
        self._beside.flush(lsn)
