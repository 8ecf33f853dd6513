"""Every table's backfill, and what of them is still to be written into the progress topic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from cdc.base.lsn import LSN
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Surroundings
from cdc.bridge.backfill.table import Phase, TableBackfill
from cdc.contract.backfill import backfill_key, backfill_value
from cdc.contract.record import BackfillProgress

_FLUSH_INTERVAL_S: Final = 1.0


class Ledger:
    """Of one session.

    There may be thousands of tables, and it is asked with each read of the stream: what waits, what is under way and
    what is to be written are found without looking at all of them.

    Args:
        stored: by table, as the last session left them.
        stream: of the session.
        around: takes the records.
    """

    def __init__(self, stored: Mapping[str, BackfillProgress], stream: StreamSide, around: Surroundings) -> None:
        self._stream = stream
        self._around = around
        self._all = {name: TableBackfill(progress, stream) for name, progress in stored.items()}
        waiting = [each for each in self._all.values() if each.phase is Phase.WAITING]
        # What the last session had begun comes first
        self._waiting = {each.name: each for each in sorted(waiting, key=lambda each: each.progress.state != "running")}
        self._begun: list[TableBackfill] = []
        """Those of this session, until the record of their end is written."""
        self._put: dict[str, TableBackfill] = {}
        """Those whose first record is not written yet."""
        self._flushed_s = 0.0

    @property
    def is_active(self) -> bool:
        """Whether something is left to be done, or to be written; a paused table is not."""
        return bool(self._waiting or self._begun)

    @property
    def under_way(self) -> list[TableBackfill]:
        """In the order in which they were begun."""
        return [each for each in self._begun if each.phase is not Phase.OVER]

    @property
    def waiting(self) -> Iterable[TableBackfill]:
        """In the order in which they are to be begun; ask anew when one of them was begun or has changed."""
        return self._waiting.values()

    def find(self, name: str) -> TableBackfill | None:
        """A table's, if it has one."""
        return self._all.get(name)

    def put(self, progress: BackfillProgress) -> None:
        """What a table's backfill is from now on; what was under way for the table is given up."""
        name = progress.table
        if (before := self._all.get(name)) is not None:
            before.give_up()
            self._begun = [each for each in self._begun if each is not before]
            self._waiting.pop(name, None)
        self._all[name] = self._put[name] = backfill = TableBackfill(progress, self._stream)
        if backfill.phase is Phase.WAITING:
            self._waiting[name] = backfill

    def began(self, backfill: TableBackfill) -> None:
        """It is under way from now on."""
        del self._waiting[backfill.name]
        self._begun.append(backfill)

    @property
    def wants_flush(self) -> bool:
        """Whether a record waits to be written: at once when it is the first or the last one, else once a second."""
        if self._put or any(each.phase is Phase.OVER for each in self._begun):
            return True
        is_due = time.monotonic() - self._flushed_s > _FLUSH_INTERVAL_S
        return is_due and any(each.is_dirty for each in self._begun)

    def flush(self, lsn: LSN) -> None:
        """Write every record that changed, into the Kafka transaction that is about to be committed."""
        changed = {each.name: each for each in self._begun if each.is_dirty}
        for name, each in {**self._put, **changed}.items():
            progress = each.stored(lsn)
            self._around.note(backfill_key(name), backfill_value(progress))
            self._around.report(progress)
        self._put.clear()
        self._begun = self.under_way
        self._flushed_s = time.monotonic()
