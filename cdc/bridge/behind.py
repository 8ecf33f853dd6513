"""What goes on beside the stream, held back until the stream has passed all that the topics hold at the start.

Before that, the topics have rows from the stream's future: a backfill's rows would get positions before theirs, and a
sweep would judge keys by them.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc.base.lsn import LSN
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.engine import Engine
from cdc.bridge.sides import BackfillPort


class BehindRepeats:
    """A ``BackfillPort`` that publishes nothing before its time.

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
        """Whether ``step`` has something to do that may be done."""
        return self._engine.settled_lsn > self._newest and self._beside.is_active

    @property
    def wants_flush(self) -> bool:
        """Whether something waits to be written although no row was published."""
        return self._beside.wants_flush

    def demand(self, demand: Demand) -> None:
        """Take up what the bridge itself asks for."""
        self._beside.demand(demand)

    def attend(self) -> None:
        """Take up new work."""
        self._beside.attend()

    def step(self, commit: Callable[[], None]) -> int:
        """Publish a portion, if its time has come."""
        return self._beside.step(commit) if self.is_active else 0

    def flush(self, lsn: LSN) -> None:
        """Write down how far it is."""
        self._beside.flush(lsn)
