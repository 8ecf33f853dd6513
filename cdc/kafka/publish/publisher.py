"""The bridge's producer: rows become readable together with the progress that covers them, or ahead of it.

With ``delivery: transactional`` everything is written in Kafka transactions, one at a time. With ``delivery:
idempotent`` a second producer sends rows at once. One rule keeps the order: a Kafka transaction begins only when Kafka
has every row that was sent, and while it is open, rows go into it. So definitions, backfills and the tombstones of a
TRUNCATE are written in the same way with both deliveries, and what they say about the rows before them is true.

Progress alone does not hold up rows. A thread writes it in a Kafka transaction of its own while more rows go out; the
progress does not cover those.

State topics may have histories. Stream changes, backfills, sweeps, repairs and the tombstones of a TRUNCATE all pass
through ``produce``, so none of them needs to know about the history. State and history share the Kafka transaction:
readers see both or neither. Envelopes are made in the same place, for the same reason: a delete becomes an envelope and
a tombstone, whatever deletes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.config.checks import MAX_MESSAGE_BYTES
from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.contract.cloud_events import CloudEvents
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.header import HEADER_NAME, header_position
from cdc.contract.history import HistoryEncoder
from cdc.contract.record import EventParts, Ready
from cdc.kafka.acls import Acl
from cdc.kafka.publish.quarantine import Quarantine
from cdc.kafka.publish.row_producer import ROWS_PATIENCE_S, Group, RowProducer, RowRejected
from cdc.kafka.publish.transactional import COMMIT_DEADLINE_S, TOO_LARGE, TransactionalProducer

_POLL_S: Final = 0.01
_ENVELOPES_AT_ONCE: Final = 500
"""Records whose envelopes are in memory together, before the client has them: few enough for the CPU's cache."""


class KafkaPublisher(TransactionalProducer):
    """The bridge's producer with a transactional id, one per bridge.

    Args:
        options, transactional_id, max_message_bytes: as for ``TransactionalProducer``, which raises the same errors.
        history: makes the records of the history topics; None when no topic has a history.
        envelopes: makes the values of enveloped topics; None when values are rows and nothing else.
        events: makes the headers of CloudEvents; None when records have none.
        rows: sends rows at once; None when all rows go into Kafka transactions. Closed with the publisher.

    Attributes:
        quarantine: decides which rows are put aside; None if none are, and none were. It is read once the publisher has
            fenced the others.
    """

    # "wait" is right even if another bridge took over: the next attempt finds the slot in use, and waits.
    _remedy_when_aborted = (
        "wait: the bridge goes on from the stored progress by itself; this process or the brokers hung"
    )
    _remedy_when_unanswered = BROKERS_AWAY
    _remedy_when_fenced = "leave this one waiting if a second bridge is meant to run; otherwise stop one of the two"

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        transactional_id: str,
        max_message_bytes: int,
        history: HistoryEncoder | None = None,
        envelopes: EnvelopeMaker | None = None,
        rows: RowProducer | None = None,
        events: CloudEvents | None = None,
    ) -> None:
        super().__init__(
            options,
            transactional_id=transactional_id,
            max_message_bytes=max_message_bytes,
            before_begin=self._await_rows,
        )
        if events is not None:
            self._send = events.sender(self._send)
        self._history = history
        self._envelopes = envelopes
        self._rows = rows
        self.quarantine: Quarantine | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._writing: Future[None] | None = None

    def start(self) -> None:
        """Fence earlier producers, as ``TransactionalProducer.start`` does; then let the row producer connect."""
        super().start()
        if self._rows is not None:
            self._rows.connect()

    @property
    def queued(self) -> int:
        """Number of records that Kafka has not acknowledged yet, as of the last ``relieve``."""
        return len(self._producer) + (0 if self._rows is None else len(self._rows))

    def produce(
        self, topic: str, key: bytes, value: bytes | None, header: bytes, old: bytes | EventParts | None = None
    ) -> None:
        """Add a record to the open Kafka transaction, opening one if there is none; waits while the queue is full.

        Args:
            topic, key, value, header: the record; the topic's history, if it has one, gets a record as well.
            old: the row before the change, for the history or the envelope; or the other parts of an event.

        Raises:
            TopicRefused: the record is larger than the topic takes.
            TopicUnavailable: the Kafka transaction cannot go on.
        """
        if self.quarantine is None or not header:
            self._produce(topic, key, value, header, old)
            return
        for record in self.quarantine.judged([(topic, key, value, header, old)]):
            self._produce(*record)

    def _produce(
        self, topic: str, key: bytes, value: bytes | None, header: bytes, old: bytes | EventParts | None
    ) -> None:
        if isinstance(old, EventParts):
            self._add_event(topic, key, value, header, old)
            return
        if self._envelopes is not None:
            for enveloped, marked in self._envelopes.values(key, value, header, old):
                self._add(topic, key, enveloped, marked)
            return
        self._add(topic, key, value, header)
        if self._history is not None and (history := self._history.topics.get(topic)) is not None:
            self._add(history, key, self._history.value(value, header, old), header)

    def _add_event(self, topic: str, key: bytes, value: bytes | None, header: bytes, event: EventParts) -> None:
        """Add an event, which has no history and no envelope, and maybe no key."""
        first = self._first
        if topic not in first.never_complete:  # so ``produce_all`` brings every event here
            first.never_complete.add(topic)
            first.complete.discard(topic)
        partition = -1
        if not event.has_key:
            try:
                partition = first.partition(topic, event.spread_by)
            except KafkaException as error:
                raise self._error("list_topics", error) from error
        headers = [(HEADER_NAME, header), *event.headers]
        self._enqueue(topic, key if event.has_key else None, value, headers, partition)

    def produce_all(self, records: Iterable[Ready]) -> None:
        """Produce these records as ``produce`` does: at least one, each with a header."""
        if self.quarantine is not None:
            records = self.quarantine.judged(list(records))
        if self._history is not None:
            for record in records:
                self._produce(*record)
            return
        if self._envelopes is None:
            self._add_all(records)
            return
        rest = iter(records)
        while some := list(islice(rest, _ENVELOPES_AT_ONCE)):
            self._add_all(self._envelopes.records(some))

    def _add_all(self, records: Iterable[Ready]) -> None:
        """Add these records as ``_add`` does."""
        if not self._open:
            self._begin()
        # The hot loop: it calls librdkafka directly, because one Python call more per record costs throughput
        send, topics, complete = self._send, self._topics, self._first.complete
        for topic, key, value, header, old in records:
            if topic not in complete:
                if isinstance(old, EventParts):
                    self._add_event(topic, key, value, header, old)
                else:
                    self._add(topic, key, value, header)
                continue
            topics.add(topic)
            try:
                send(topic, value, key, -1, None, None, 0, [("cdc", header)])
            except (BufferError, KafkaException):
                self._add(topic, key, value, header)  # try again where a full queue is waited for, errors translated

    def bury(self, topic: str, partition: int, key: bytes, header: bytes) -> None:
        """Add a tombstone to this partition, where the key does not belong; otherwise as ``produce``."""
        self._add(topic, key, None, header, partition)

    def relieve(self) -> None:
        """Take the waiting acknowledgements, so that the client frees these records; never waits.

        Raises:
            TopicRefused: Kafka refused a row that was sent at once.
            TopicUnavailable: rows can no longer be sent.
        """
        if self._rows is not None:
            self._rows.poll()
        # While a progress is being written, its thread takes the reports.
        if self._writing is None:
            self._take_reports()
        if self._rows is not None and (self._rows.failed is not None or self._rows.refusal is not None):
            raise self._row_error(self._rows)

    def send_rows(self, records: Sequence[Ready]) -> None:
        """Send rows of the stream at once, each with a header, while no Kafka transaction is open.

        Raises:
            TopicRefused: a row is larger than the topic takes, or a right is missing.
            TopicUnavailable: Kafka does not take the rows.
        """
        assert not self._open
        assert self._rows is not None
        try:
            self._rows.send(records)
        except RowRejected as rejected:
            if rejected.record is not None and rejected.error.code() in TOO_LARGE:
                topic, key, value, header, _ = rejected.record
                size = len(key) + len(value or b"") + len(header)
                raise self._too_large(topic, key, header, f"{size} bytes") from rejected
            raise self._row_error(self._rows, rejected.error) from rejected

    @property
    def has_rows_under_way(self) -> bool:
        """Whether rows that were sent at once are not acknowledged yet, as of the last ``relieve``."""
        return self._rows is not None and len(self._rows) > 0

    @property
    def late(self) -> Mapping[str, Collection[bytes]]:
        """Keys, by topic, of rows that Kafka may have stored after newer ones of a bridge that had taken over."""
        return {} if self._rows is None else self._rows.late

    def next_group(self) -> Group:
        """End and return the current group of rows that were sent at once; an empty group without a row producer."""
        return Group() if self._rows is None else self._rows.next_group()

    def proved(self, at: float) -> None:
        """Take note that no other bridge had taken over at ``at`` (``time.monotonic``): extends the wait for rows."""
        if self._rows is None:
            return
        self._rows.wanted_until = at + ROWS_PATIENCE_S
        if at > self._rows.late_at:  # a proof from before a standstill says nothing about rows that went out after it
            self._rows.late.clear()

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        """Write one record in a Kafka transaction of its own while rows go out; ``is_written`` returns the outcome."""
        assert not self._open
        assert self._writing is None
        self._began_at = time.monotonic()
        self._writing = self._thread.submit(self._write, topic, key, value)

    @property
    def is_writing(self) -> bool:
        """Whether the record of the last ``write`` is still on its way."""
        return self._writing is not None

    def is_written(self) -> bool:
        """Whether the record of the last ``write`` is committed. Returns True once, then False until the next one.

        Raises:
            CdcError: what ``commit`` raises.
        """
        if self._writing is None or not self._writing.done():
            return False
        writing, self._writing = self._writing, None
        writing.result()
        return True

    def close(self) -> None:
        """Take back unsent rows, abort the open transaction, and end the threads; then ``late`` is complete."""
        if self._rows is not None:
            self._rows.close()
        self._failure = self._failure or TopicUnavailable(
            "this session has ended", remedy="wait: the next session sends what this one did not"
        )  # a commit that the thread still tries is not tried again
        self._thread.shutdown(wait=True)
        super().close()

    def _await_rows(self) -> None:
        """Wait until Kafka has everything that was sent before a Kafka transaction begins."""
        if self._writing is not None:  # a producer has one Kafka transaction at a time: the thread's has to end first
            writing, self._writing = self._writing, None
            writing.result()
        if self._rows is None:
            return
        deadline = self._rows.deadline()
        while len(self._rows):
            self._rows.poll(_POLL_S)
            if self._rows.failed is not None or self._rows.refusal is not None:
                raise self._row_error(self._rows)
            if len(self._rows) and time.monotonic() > deadline:
                raise TopicUnavailable(
                    f"Kafka did not take the rows within {ROWS_PATIENCE_S:g} s",
                    remedy=BROKERS_AWAY,
                )

    def _write(self, topic: str, key: bytes, value: bytes) -> None:
        """Runs in the progress thread. ``_open`` stays False: the bridge's thread has no Kafka transaction open."""
        try:
            # Without asking for a repeated end, as ``_begin`` does: one record cannot be committed in the middle
            self._producer.begin_transaction()
            self._producer.produce(topic, value, key)
        except KafkaException as error:
            raise self._error("begin_transaction", error) from error
        self._until_done("commit_transaction", self._producer.commit_transaction, COMMIT_DEADLINE_S)

    def _row_error(self, rows: RowProducer, error: KafkaError | None = None) -> CdcError:
        """Returns the error that says why Kafka does not take rows."""
        if rows.refusal is not None:
            return rows.refusal
        if rows.failed is not None:
            error, message = rows.failed
            if message is not None:
                self._delivery_failed(error, message)
                if self._failure is not None:
                    return self._failure
        assert error is not None
        return TopicUnavailable(
            f"cannot send rows to Kafka: {error.str()}",
            remedy=BROKERS_AWAY,
        )

    def _grant(self, acl: Acl) -> str:
        return acl.remedy(self._options)

    def _too_large(self, topic: str, key: bytes, header: bytes, size: str) -> TopicRefused:
        at = f" at LSN {header_position(header).lsn}" if header else ""
        if not key:  # only events have none
            return TopicRefused(
                f"the event{at} is too large for topic {topic!r} ({size})",
                remedy=f"raise topics.max_message_bytes in the configuration and max.message.bytes of topic {topic!r}; "
                f"an event above {MAX_MESSAGE_BYTES} bytes cannot be published: take its prefix out of "
                "source.messages, or its table out of source.outbox, until the bridge has passed it",
            )
        return TopicRefused(
            f"the row with key {key.decode(errors='replace')}{at} is too large for topic {topic!r} ({size})",
            remedy=f"raise topics.max_message_bytes in the configuration and max.message.bytes of topic {topic!r}; "
            f"a row above {MAX_MESSAGE_BYTES} bytes cannot be published: "
            "publish the table without its large column (a column list)",
        )
