"""Keeps every table's backfill, and which of their records are still to be written into the progress topic."""

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
    """Keeps the backfills of one session.

    There may be thousands of tables, and the ledger is asked with each read of the stream. So it finds what waits, what
    is under way and what is to be written without looking at all of them.

    Args:
        stored: the records by table, as the last session left them.
        stream: the session's side of the stream.
        around: takes the records.
    """

    def __init__(self, stored: Mapping[str, BackfillProgress], stream: StreamSide, around: Surroundings) -> None:
        self._stream = stream
        self._around = around
        self._all = {name: TableBackfill(progress, stream) for name, progress in stored.items()}
        waiting = [each for each in self._all.values() if each.phase is Phase.WAITING]
        # Go on first with what the last session had begun
        self._waiting = {each.name: each for each in sorted(waiting, key=lambda each: each.progress.state != "running")}
        self._begun: list[TableBackfill] = []
        """The backfills that this session began, until the record of their end is written."""
        self._put: dict[str, TableBackfill] = {}
        """The backfills whose first record is not written yet."""
        self._flushed_s = 0.0

    @property
    def is_active(self) -> bool:
        """Whether something is left to be done or written; a paused table does not count."""
        return bool(self._waiting or self._begun)

    @property
    def under_way(self) -> list[TableBackfill]:
        """The backfills that were begun and are not over, in the order in which they were begun."""
        return [each for each in self._begun if each.phase is not Phase.OVER]

    @property
    def waiting(self) -> Iterable[TableBackfill]:
        """The backfills to begin, in order. Ask anew once one of them was begun or has changed."""
        return self._waiting.values()

    def find(self, name: str) -> TableBackfill | None:
        """Returns the backfill of a table, if there is one."""
        return self._all.get(name)

    def put(self, progress: BackfillProgress) -> None:
        """Replace a table's backfill, and give up what was under way for the table."""
        name = progress.table
        if (before := self._all.get(name)) is not None:
            before.give_up()
            self._begun = [each for each in self._begun if each is not before]
            self._waiting.pop(name, None)
        self._all[name] = self._put[name] = backfill = TableBackfill(progress, self._stream)
        if backfill.phase is Phase.WAITING:
            self._waiting[name] = backfill

    def began(self, backfill: TableBackfill) -> None:
        """Note that a waiting backfill is under way from now on."""
        del self._waiting[backfill.name]
        self._begun.append(backfill)

    @property
    def wants_flush(self) -> bool:
        """Whether to write a record: at once if it is the first or last one of a backfill, else once a second."""
        if self._put or any(each.phase is Phase.OVER for each in self._begun):
            return True
        is_due = time.monotonic() - self._flushed_s > _FLUSH_INTERVAL_S
        return is_due and any(each.is_dirty for each in self._begun)

    def flush(self, lsn: LSN) -> None:
        """Write every changed record into the Kafka transaction that is about to be committed."""
        changed = {each.name: each for each in self._begun if each.is_dirty}
        for name, each in {**self._put, **changed}.items():
            progress = each.stored(lsn)
            self._around.note(backfill_key(name), backfill_value(progress))
            self._around.report(progress)
        self._put.clear()
        self._begun = self.under_way
        self._flushed_s = time.monotonic()
