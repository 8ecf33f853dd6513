"""The loop with ``delivery: idempotent``: rows go out as they are read, and progress follows at a pace of its own.

Theory of operation. Rows leave with every read (``PromptSide.send``). A progress is drawn up some hundredths of a
second after the last one, when it has rows to cover. It is written once Kafka has all of these, beside the rows that
go out meanwhile, and confirmed to the slot once it is committed. So the slot, the sinks and the next start know of rows
a little later than readers of the topics do, and never of one that is not there.

While a Kafka transaction is open, for whatever is no ordinary row, all is as in ``loop``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from cdc.bridge.encode import TableEncoder
from cdc.bridge.loop import Bridge
from cdc.bridge.order.engine import Engine
from cdc.bridge.prompt_side import PromptSide
from cdc.bridge.sides import LoopSides
from cdc.contract.record import Progress

_PACE_S: Final = 0.05
"""Between two progresses. Each costs the brokers a Kafka transaction, and a replica cannot be newer than the last."""
_SILENCE_S: Final = 1.0
"""A progress is written as often as this, also when nothing happens: it proves that no other bridge took over."""
_POLL_S: Final = 0.002
_WAIT_S: Final = 0.5


class PromptBridge(Bridge):
    """One streaming session.

    Args:
        sides: with a ``PromptSide``.
        engine, resume, beginnings, on_commit: as for ``Bridge``.
        is_first: True: before the first row the topics must say that rows may be ahead.
    """

    def __init__(
        self,
        sides: LoopSides,
        engine: Engine,
        resume: Progress,
        *,
        beginnings: list[TableEncoder],
        is_first: bool,
        on_commit: Callable[[Progress], None],
    ) -> None:
        super().__init__(sides, engine, resume, beginnings=beginnings, is_first=is_first, on_commit=on_commit)
        assert isinstance(sides.kafka, PromptSide)
        self._prompt = sides.kafka
        self._drawn_up_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """As ``Bridge.run``; then it is on record that nothing is beyond the last progress."""
        super().run(stop)
        self._prompt.end(self._engine.progress())

    def _read(self) -> list[bytes]:
        if (followed := self._prompt.covered()) is not None:
            self._confirm(*followed)
        return super()._read()

    def _send(self) -> None:
        super()._send()
        if not self._prompt.in_transaction:
            self._batch.went_out()

    def _publish(self) -> None:
        if self._prompt.in_transaction or self._backfill.wants_flush:
            super()._publish()
            return
        self._settle()
        self._send()
        if not self._is_short_of_its_reach:
            self._drawn_up_at = time.monotonic()
            self._prompt.cover(self._reached())

    def _is_due(self) -> bool:
        if self._prompt.in_transaction or self._engine.holds_records or self._backfill.wants_flush:
            return super()._is_due()
        if self._prompt.is_covering or self._is_short_of_its_reach:
            return False
        since_s = time.monotonic() - self._drawn_up_at
        is_worth_it = self._prompt.is_open and not self._engine.inside_transaction
        return since_s > (_PACE_S if is_worth_it else _SILENCE_S)

    def _drained(self) -> None:
        if self._prompt.in_transaction:
            super()._drained()
            return
        if self._engine.holds_records and not self._batch.is_behind and not self._engine.inside_transaction:
            self._publish()
        self._stream.feedback_if_due()
        if self._is_due():
            self._publish()
        is_busy = self._prompt.is_open or self._engine.holds_records or self._backfill.is_active
        self._stream.wait(_POLL_S if is_busy else _WAIT_S)
