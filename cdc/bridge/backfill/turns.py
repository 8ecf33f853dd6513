"""Decides whose turn it is: which tables may begin, and which portions wait because their table exceeds its rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cdc.bridge.backfill.ledger import Ledger
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Surroundings
from cdc.bridge.backfill.table import TableBackfill
from cdc.bridge.backfill.tasks import Portion
from cdc.bridge.backfill.wal_wait import WalWait


class Gate:
    """Decides which tables may begin.

    Args:
        ledger: knows what is under way.
        stream: tells where the stream is.
        around: knows where the source's WAL ends.
        wait: is told whether a table waits for the stream.
    """

    def __init__(self, ledger: Ledger, stream: StreamSide, around: Surroundings, wait: WalWait) -> None:
        self._ledger = ledger
        self._stream = stream
        self._around = around
        self._wait = wait

    def opens(self, backfill: TableBackfill) -> bool:
        """Whether a table may begin now. Tables with a rate take turns, one after another.

        A table to be swept waits until the stream has come to where the WAL ended when this was first asked. A sweep
        trusts what the stream brings after the sweep's beginning, so changes that told too little must lie before it.
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
        if backfill.sweeps_after is None:
            backfill.sweeps_after = self._around.wal_end()
        return self._stream.complete_lsn >= backfill.sweeps_after


class Aside:
    """Portions of tables that exceed their rates or wait for the sink, in order for each table.

    There are few of them: while a table has a portion here, no more of it is read. Before that, it has at most the
    chunks that all readers take at once, each of about a second.

    Args:
        has_to_wait: whether a table has to wait now.
    """

    def __init__(self, has_to_wait: Callable[[TableBackfill], bool]) -> None:
        self._has_to_wait = has_to_wait
        self._portions: deque[Portion] = deque()

    def keeps(self, portion: Portion) -> bool:
        """Take a portion whose table has to wait; False if the portion may go on."""
        backfill = portion.task.backfill
        if not self.holds(backfill) and not self._has_to_wait(backfill):
            return False
        self._portions.append(portion)
        return True

    def take(self) -> Portion | None:
        """Returns the first portion whose table may go on now; None when there is none."""
        waiting: list[TableBackfill] = []
        for portion in self._portions:
            backfill = portion.task.backfill
            if backfill not in waiting and not self._has_to_wait(backfill):
                self._portions.remove(portion)
                return portion
            waiting.append(backfill)
        return None

    def holds(self, backfill: TableBackfill) -> bool:
        """Whether a portion of this table waits; its other portions then have to stay in line."""
        return any(each.task.backfill is backfill for each in self._portions)
