"""What the loop does to Kafka with ``delivery: idempotent``: rows at once, and the progress that covers them behind.

A bridge that was silent for long enough for another one to take over must not send what it still holds. So it sends
rows only while it has proof: a Kafka transaction of its own that began within the last two seconds was committed, and
whoever takes over makes every later one fail. Who takes over waits for a little longer than that, before it looks at
what is there (``resume.GRACE_S``).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.config import Config
from cdc.base.crashpoints import reach
from cdc.base.errors import TopicUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.kafka_side import KafkaSide
from cdc.bridge.order.needs import Empty
from cdc.bridge.order.repeats import Repeats
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.topic_watch import TopicWatch
from cdc.contract.gaps import published_until
from cdc.contract.header import header_position
from cdc.contract.progress import progress_value
from cdc.contract.record import Lead, Progress, Ready
from cdc.kafka.publish.prompt import PromptPublisher
from cdc.kafka.publish.row_producer import ROWS_PATIENCE_S, Group

_PROOF_S: Final = 2.0
"""Twice as long as an idle bridge is silent."""


class _Covering(NamedTuple):
    """A progress that is on its way: rows, and when it was begun."""

    progress: Progress
    rows: Group
    began_at: float


class PromptSide(KafkaSide):
    """Of one session.

    Args:
        config, registry, watch: as for ``KafkaSide``.
        publisher: started.
        resume: the stored progress.
        repeats: what is beyond that already; None when nothing is.
    """

    def __init__(
        self,
        config: Config,
        publisher: PromptPublisher,
        registry: CapturedTables,
        watch: TopicWatch,
        resume: Progress,
        repeats: Repeats | None,
    ) -> None:
        super().__init__(config, publisher, registry, watch, resume, repeats)
        self._prompt = publisher
        self._written = resume
        self._sent = LSN(published_until(resume) - 1)
        self._proved_at = -math.inf
        self._is_uncovered = False
        self._is_behind_emptying = False
        self._covering: _Covering | None = None
        self._is_open = True

    @property
    def in_transaction(self) -> bool:
        """Whether a Kafka transaction holds records."""
        return self._prompt.is_open

    @property
    def is_covering(self) -> bool:
        """Whether a progress is on its way."""
        return self._covering is not None

    @property
    def is_open(self) -> bool:
        """Whether records were sent that no committed progress covers."""
        return self.in_transaction or self._is_uncovered or self.is_covering

    def send(self, records: Sequence[Ready]) -> None:
        """Send rows of the stream: at once, or into the Kafka transaction while one is open or proof comes late."""
        self._is_uncovered = True  # also when they are there already: their progress is not
        if self._repeats is not None and not (records := self._repeats.left(records)):
            return
        is_inside = self.in_transaction or self._is_behind_emptying
        if not is_inside and not self._is_proved:
            self._prove()
            is_inside = not self._is_proved  # it took so long that it is old already
        if is_inside:
            self._prompt.produce_all(records)
            return
        self._prompt.send_rows(records)
        self._sent = max(self._sent, header_position(records[-1][3]).lsn)
        reach("bridge.rows_sent")

    def empty(
        self, need: Empty, *, commit: Callable[[], None], sign_of_life: Callable[[], None], stop: threading.Event
    ) -> bool:
        """As ``KafkaSide.empty``; no row follows before its progress does, also when there was nothing to delete.

        Emptied once more, after a crash, the topic would lose such a row, and ``Repeats`` would say that it is there.
        """
        is_emptied = super().empty(need, commit=commit, sign_of_life=sign_of_life, stop=stop)
        self._is_behind_emptying = True
        return is_emptied

    def cover(self, progress: Progress) -> None:
        """Have this progress follow the rows that were sent until now, unless another one is on its way or due."""
        if self._covering is None and not self.in_transaction:
            self._covering = _Covering(progress, self._prompt.next_group(), 0.0)
            self._is_uncovered = False

    def covered(self) -> tuple[Progress, float] | None:
        """The progress that has followed, told once, and how long its Kafka transaction took; call it often.

        Raises:
            TopicUnavailable: Kafka has not taken rows, or progress, for too long.
        """
        if self._covering is None or self.in_transaction:  # what is open is committed with a newer one
            return None
        progress, rows, began_at = self._covering
        if self._prompt.is_writing:
            if self._prompt.is_written():
                self._covering, self._written = None, progress
                self._proved(began_at)
                return progress, time.monotonic() - began_at
        elif rows.is_acked:
            if rows.sent:
                reach("bridge.rows_acked")
            reach("bridge.before_kafka_commit")
            began_at = time.monotonic()
            self._prompt.write(self._progress_topic, self._progress_key, progress_value(self._told(progress)))
            self._covering = _Covering(progress, rows, began_at)
        if self._prompt.has_rows_under_way and time.monotonic() - self._proved_at > ROWS_PATIENCE_S:
            raise TopicUnavailable(
                f"Kafka took neither rows nor progress for {ROWS_PATIENCE_S:g} s",
                remedy=BROKERS_AWAY,
            )
        return None

    def commit(self, progress: Progress) -> None:
        """Commit what is open with this progress, behind all rows that were sent; on return it is readable."""
        self._write(progress)
        self._prompt.next_group()
        self._covering, self._is_uncovered, self._is_behind_emptying = None, False, False

    def end(self, progress: Progress) -> None:
        """Say that nothing is beyond this progress, which is committed: nothing is sent any more."""
        self._is_open = False
        self._write(progress)

    @property
    def _is_proved(self) -> bool:
        return time.monotonic() - self._proved_at <= _PROOF_S

    def _prove(self) -> None:
        """Have Kafka take what it has already, or is about to have: it does not if another bridge took over."""
        is_writing = self._covering is not None and self._prompt.is_writing
        self._write(self._covering.progress if self._covering is not None and is_writing else self._written)

    def _write(self, progress: Progress) -> None:
        began_at = time.monotonic()
        super().commit(progress)
        self._written = progress
        self._proved(began_at)

    def _proved(self, at: float) -> None:
        self._proved_at = at
        self._prompt.proved(at)

    def _told(self, progress: Progress) -> Progress:
        self._pass(progress.lsn)
        sent = self._sent if self._repeats is None else max(self._sent, self._repeats.greatest)
        return replace(progress, lead=Lead(sent, self._is_open or self._repeats is not None))
