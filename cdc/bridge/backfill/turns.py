"""Whose turn it is: which tables may begin, and whose portion waits aside because its table is ahead of its rate."""

from __future__ import annotations

from collections import deque

from cdc.bridge.backfill.ledger import Ledger
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Surroundings
from cdc.bridge.backfill.table import TableBackfill
from cdc.bridge.backfill.tasks import Portion
from cdc.bridge.backfill.wal_wait import WalWait


class Gate:
    """Which tables may begin.

    Args:
        ledger: knows what is under way.
        stream: tells where it is.
        around: knows where the source's WAL ends.
        wait: told whether a table waits for the stream.
    """

    def __init__(self, ledger: Ledger, stream: StreamSide, around: Surroundings, wait: WalWait) -> None:
        self._ledger = ledger
        self._stream = stream
        self._around = around
        self._wait = wait

    def opens(self, backfill: TableBackfill) -> bool:
        """Whether a table may begin now: tables with a rate come one after another.

        One that is swept waits until the stream has come to where the WAL ended when this was first asked. A sweep
        trusts what comes behind its beginning, so changes that told too little have to lie before it.
        """
        if backfill.progress.rate is not None and self._is_rate_in_use():
            return False
        if not backfill.needs_offsets:
            return True
        if self._stream.holds_records or not self._has_come(backfill):
            self._wait.begin()
            return False
        self._wait.end()
        return True

    def _is_rate_in_use(self) -> bool:
        return any(each.progress.rate is not None for each in self._ledger.under_way)

    def _has_come(self, backfill: TableBackfill) -> bool:
        if backfill.sweep_behind is None:
            backfill.sweep_behind = self._around.wal_end()
        return self._stream.complete_lsn >= backfill.sweep_behind


class Aside:
    """Portions of tables that are ahead of their rate, in order for each table.

    It stays small: while a table has something here no more of it is read, and before that the chunks that all readers
    take at once, each of about a second.
    """

    def __init__(self) -> None:
        self._portions: deque[Portion] = deque()

    def keeps(self, portion: Portion) -> bool:
        """Take it, if its table has to wait; else it may go on."""
        backfill = portion.task.backfill
        if not self.holds(backfill) and not backfill.is_ahead_of_its_rate:
            return False
        self._portions.append(portion)
        return True

    def take(self) -> Portion | None:
        """The first portion whose table may go on by now."""
        waiting: list[TableBackfill] = []
        for portion in self._portions:
            backfill = portion.task.backfill
            if backfill not in waiting and not backfill.is_ahead_of_its_rate:
                self._portions.remove(portion)
                return portion
            waiting.append(backfill)
        return None

    def holds(self, backfill: TableBackfill) -> bool:
        """Whether something of this table waits, behind which its other portions have to stay."""
        return any(each.task.backfill is backfill for each in self._portions)
