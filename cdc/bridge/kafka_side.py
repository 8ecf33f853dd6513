"""What the loop does to Kafka: it writes rows, definitions, tombstones, and the progress that covers them.

Rows go where ``coverage.py`` says. A row outside of a Kafka transaction is not fenced, so the bridge sends rows at once
only with proof that no other bridge took over while it was silent. The proof is a committed Kafka transaction of its
own that began within the last two seconds: whoever takes over makes every later one fail. A bridge that takes over
waits a little longer than that before it looks at the topics (``resume.GRACE_S``).
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import structlog

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.config import Config
from cdc.base.crashpoints import reach
from cdc.base.errors import SourceRefused, TopicUnavailable
from cdc.base.lsn import LSN, ZERO
from cdc.bridge.coverage import RULES, TRANSITIONS, Coverage, CoverageEvent, CoverageRule, RowsGo
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.needs import Empty, EventTopic
from cdc.bridge.order.repeats import Repeats
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.topic_watch import TopicWatch
from cdc.bridge.truncate import publish_tombstones
from cdc.contract.gaps import published_until
from cdc.contract.header import header_position, of_schema
from cdc.contract.naming import progress_topic
from cdc.contract.progress import progress_value, stream_key
from cdc.contract.record import Lead, Progress, Ready, RepairKey
from cdc.contract.repair import parts_of, repair_request_key, repair_request_value
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.row_producer import ROWS_PATIENCE_S, Group

_BUSY_RECORDS: Final = 5_000
"""More records than the brokers take in some hundredths of a second. A commit waits for every queued record, and a
backfill would fill the whole queue, so the stream's rows would wait, too. This slows a backfill by up to a fifth."""
_PROOF_S: Final = 2.0
"""Twice as long as an idle bridge is silent (``coverage.IDLE_S``)."""

log = structlog.get_logger("cdc.bridge")


class _Covering(NamedTuple):
    """A progress that was drawn up, the rows that it waits for, and when its Kafka transaction began (0: not yet)."""

    progress: Progress
    rows: Group
    began_at: float


class KafkaSide:
    """Kafka, for one session.

    Args:
        config: the whole configuration.
        publisher: the publisher, already started.
        registry: knows which definitions are written.
        watch: watches the topics.
        resume: the stored progress.
        repeats: rows beyond the stored progress that the topics already hold; None when there are none.
    """

    def __init__(
        self,
        config: Config,
        publisher: KafkaPublisher,
        registry: CapturedTables,
        watch: TopicWatch,
        resume: Progress,
        repeats: Repeats | None,
    ) -> None:
        self._config = config
        self._publisher = publisher
        self._registry = registry
        self._watch = watch
        self._repeats = repeats
        self._progress_topic = progress_topic(config.name)
        self._progress_key = stream_key(config.source.slot)
        self._rules = RULES[config.delivery]
        self._coverage = Coverage.COVERED
        self._covering: _Covering | None = None
        self._is_after_emptying = False
        self._written = resume
        self._proved_at = -math.inf
        # What readers are told about rows that may be ahead of the progress, once any were sent.
        self._sends_at_once = config.delivery == "idempotent"
        self._tells_lead = self._sends_at_once or resume.lead is not None
        self._sent = LSN(published_until(resume) - 1) if self._sends_at_once else ZERO

    @property
    def coverage(self) -> Coverage:
        """How the stored progress relates to what was sent. The publisher is asked: others open transactions, too."""
        return Coverage.IN_TRANSACTION if self._publisher.is_open else self._coverage

    @property
    def rule(self) -> CoverageRule:
        """What the bridge does in the present case."""
        return self._rules[self.coverage]

    @property
    def keeps_whole(self) -> bool:
        """Whether a Kafka transaction should end after a commit of the source, unless that is too far away.

        An event is readable together with the rows of its transaction then, and nothing of a transaction is that has
        more rows for the quarantine than it takes.
        """
        source = self._config.source
        return bool(source.outbox or source.messages or source.quarantine)

    @property
    def is_busy(self) -> bool:
        """Whether so many records are on their way that the next commit would wait for them."""
        return self._publisher.queued > _BUSY_RECORDS

    def look(self) -> None:
        """Check the topics, and release the records that Kafka has acknowledged. Never waits; call it in every pass.

        Raises:
            GapError: a topic lost records.
            TopicUnavailable: a topic lost records, and the next attempt closes the gap.
        """
        self._publisher.relieve()
        self._watch.look()

    def send(self, records: Sequence[Ready]) -> bool:
        """Send rows of the stream, except for those that the topics already hold.

        Returns:
            Whether they went to their topics at once; False when they are in the Kafka transaction.
        """
        if self.rule.rows is RowsGo.AT_ONCE:
            self._happened(CoverageEvent.ROWS)  # even if Kafka holds all of them: no stored progress covers them
        if self._repeats is not None and not (records := self._repeats.left(records)):
            return not self._publisher.is_open
        quarantine = self._publisher.quarantine
        if (quarantine is not None and quarantine.concerns(records)) or not self._may_send_at_once():
            self._publisher.produce_all(records)
            return False
        self._publisher.send_rows(records)
        self._sent = max(self._sent, header_position(records[-1][3]).lsn)
        reach("bridge.rows_sent")
        return True

    def describe(self, table: TableEncoder) -> None:
        """Add a table's definition, unless the topic was last written with the same one."""
        self._registry.describe(table, self._publisher.produce)

    def ensure(self, need: EventTopic) -> None:
        """Create the topic of an event if it is missing, or check that it loses none.

        Raises:
            TopicRefused: the topic belongs to a table, or is compacted.
        """
        self._registry.outboxes.ensure_topics([need.topic])

    def ask_again(self, table: str, keys: Sequence[bytes]) -> None:
        """Add a repair request, as a person would make it: the keys are published again, as the table has them then."""
        for part in parts_of(uuid.uuid4().hex, table, map(RepairKey, dict.fromkeys(keys))):
            key = repair_request_key(part.request, part.part)
            self._publisher.produce(self._progress_topic, key, repair_request_value(part), b"")

    def empty(
        self, need: Empty, *, commit: Callable[[], None], sign_of_life: Callable[[], None], stop: threading.Event
    ) -> bool:
        """Add tombstones for every live key of a topic, or do what ``topics.truncate`` says; False when stopped.

        No row is sent before the progress that covers this is committed, even if there was nothing to delete. After a
        crash the topic is emptied again: it would lose such a row, while ``Repeats`` would say that the row is there.
        The same goes for a TRUNCATE that was ignored, because ``topics.truncate`` may have changed by the next start.

        When a topic begins anew, its tombstones name the definition that their keys were written with. A reader may
        consider an old key and a new one equal although they lie in different partitions: definitions tell them apart.

        Raises:
            SourceRefused: the table was truncated, and the configuration wants a person to decide.
        """
        is_emptied = self._empty(need, commit=commit, sign_of_life=sign_of_life, is_stopped=stop.is_set)
        # Set it last: each commit between the tombstones resets it.
        self._is_after_emptying = True
        return is_emptied

    def commit(self, progress: Progress) -> None:
        """Commit the open Kafka transaction with this progress, after all rows that were sent. It is readable then."""
        self._write(progress)
        self._publisher.next_group()
        self._coverage = TRANSITIONS[self.coverage][CoverageEvent.COMMIT]
        self._covering = None
        self._is_after_emptying = False

    def cover(self, progress: Progress) -> None:
        """Let this progress follow the rows sent so far, unless another one is on its way or a transaction is open."""
        if CoverageEvent.COVER in TRANSITIONS[self.coverage]:
            self._happened(CoverageEvent.COVER)
            self._covering = _Covering(progress, self._publisher.next_group(), 0.0)

    def covered(self) -> tuple[Progress, float] | None:
        """Returns a progress that has arrived, once, and how long its Kafka transaction took; call it often.

        Raises:
            TopicUnavailable: Kafka has not acknowledged rows or progress for too long.
        """
        if self._covering is None or self._publisher.is_open:  # an open transaction will commit a newer progress
            return None
        progress, rows, began_at = self._covering
        if self._publisher.is_writing:
            if self._publisher.is_written():
                self._happened(CoverageEvent.ARRIVED)
                self._covering, self._written = None, progress
                self._proved(began_at)
                return progress, time.monotonic() - began_at
        elif rows.is_acked:
            if rows.sent:
                reach("bridge.rows_acked")
            reach("bridge.before_kafka_commit")
            began_at = time.monotonic()
            self._publisher.write(self._progress_topic, self._progress_key, progress_value(self._told(progress)))
            self._covering = _Covering(progress, rows, began_at)
        # Without proof for so long, another bridge may have taken over: these rows must not go out any more.
        if self._publisher.has_rows_under_way and time.monotonic() - self._proved_at > ROWS_PATIENCE_S:
            raise TopicUnavailable(
                f"Kafka acknowledged neither rows nor progress for {ROWS_PATIENCE_S:g} s",
                remedy=BROKERS_AWAY,
            )
        return None

    def end(self, progress: Progress) -> None:
        """Tell readers that no row lies beyond this progress, which is committed. Send nothing afterwards."""
        if self._sends_at_once:
            self._sends_at_once = False
            self._write(progress)

    def _empty(
        self,
        need: Empty,
        *,
        commit: Callable[[], None],
        sign_of_life: Callable[[], None],
        is_stopped: Callable[[], bool],
    ) -> bool:
        name = need.table.relation.qualified_name
        if need.is_truncate and self._config.topics.truncate == "ignore":
            log.warning(
                "TRUNCATE ignored, as topics.truncate says",
                table=name,
                remedy="if its readers should follow, run cdc backfill TABLE --sweep: it deletes keys that the table "
                "does not have",
            )
            return True
        if need.is_truncate and self._config.topics.truncate == "fail":
            raise SourceRefused(
                f"table {name} was truncated, and topics.truncate is 'fail'",
                remedy="set topics.truncate to 'tombstone' (delete all its keys) or 'ignore' (keep them), then restart",
            )
        header = need.header if need.is_truncate else self._of_former_keys(need)
        count = publish_tombstones(
            BrokerAdmin(self._config.kafka.client_options()),
            need.table.topic,
            header,
            publisher=self._publisher,
            commit=commit,
            sign_of_life=sign_of_life,
            is_stopped=is_stopped,
        )
        if count is not None and self._publisher.quarantine is not None:
            # Last: a bridge that is killed before empties the topic again
            for record in self._publisher.quarantine.cleared(need.table.topic, header):
                self._publisher.produce(*record)
        if need.is_truncate and count is not None:
            log.info("TRUNCATE published", table=name, tombstones=count)
        return count is not None

    def _happened(self, event: CoverageEvent) -> None:
        self._coverage = TRANSITIONS[self.coverage][event]

    def _may_send_at_once(self) -> bool:
        """Whether rows may go to their topics at once. Renews the proof if it is too old."""
        if self.rule.rows is RowsGo.INSIDE or self._is_after_emptying:
            return False
        if not self._is_proved:
            self._prove()
        return self._is_proved  # renewing may have taken so long that the proof is too old again

    @property
    def _is_proved(self) -> bool:
        return time.monotonic() - self._proved_at <= _PROOF_S

    def _prove(self) -> None:
        """Commit a progress that Kafka already has, or is about to have. Kafka refuses if another bridge took over."""
        is_writing = self._covering is not None and self._publisher.is_writing
        self._write(self._covering.progress if self._covering is not None and is_writing else self._written)

    def _write(self, progress: Progress) -> None:
        began_at = time.monotonic()
        self._publisher.produce(self._progress_topic, self._progress_key, progress_value(self._told(progress)), b"")
        self._publisher.commit()
        self._written = progress
        self._proved(began_at)

    def _proved(self, at: float) -> None:
        self._proved_at = at
        self._publisher.proved(at)

    def _told(self, progress: Progress) -> Progress:
        """Returns the progress with the ``lead`` that readers need, if rows were ever sent ahead of it."""
        if self._repeats is not None and self._repeats.are_passed(progress.lsn):
            self._repeats = None  # the stream has passed everything that the topics held at the start
        if self._publisher.quarantine is not None:
            progress = replace(progress, quarantined=self._publisher.quarantine.counts)
        if not self._tells_lead:
            return progress
        sent = self._sent if self._repeats is None else max(self._sent, self._repeats.greatest)
        return replace(progress, lead=Lead(sent, self._sends_at_once or self._repeats is not None))

    def _of_former_keys(self, need: Empty) -> bytes:
        last = self._registry.successions.last(need.table.topic)
        return need.header if last is None else of_schema(need.header, last.fingerprint)
