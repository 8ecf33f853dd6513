"""The bridge's producer: rows and the progress that covers them become readable together, or rows ahead of it.

Everything may be written in Kafka transactions, one at a time. A publisher that sends rows at once (``delivery:
idempotent``) has a second producer for them, and one rule keeps the order: no Kafka transaction begins before Kafka has
every row that was sent, and no row is sent beside an open one: rows that come meanwhile go into it. So all that is not
an ordinary row (definitions, backfills, tombstones of a TRUNCATE) is written in the same way in both deliveries, and
what it says of the rows before it is true. Progress alone need not hold up rows: a thread writes it in a Kafka
transaction of its own, while more rows go out. It says nothing of those.

State topics may have histories. The stream's changes, backfills, sweeps, repairs and the tombstones of a TRUNCATE all
end in ``produce``, so none of them has to know of the history; and state and history share the Kafka transaction, so
both are readable or neither.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.config.checks import MAX_MESSAGE_BYTES
from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.contract.header import header_position
from cdc.contract.history import HistoryEncoder
from cdc.contract.record import Ready
from cdc.kafka.acls import Acl
from cdc.kafka.publish.row_producer import ROWS_PATIENCE_S, Group, RowProducer, RowRejected
from cdc.kafka.publish.transactional import COMMIT_DEADLINE_S, TOO_LARGE, TransactionalProducer

_POLL_S: Final = 0.01


class KafkaPublisher(TransactionalProducer):
    """A producer with a transactional id, one per bridge.

    Args:
        options, transactional_id, max_message_bytes: as for ``TransactionalProducer``, which tells the errors.
        history: makes the records of the history topics; None when no topic has one.
        rows: sends rows at once; None when all of them go in Kafka transactions. Closed with the publisher.
    """

    # If somebody did take over meanwhile, the next attempt finds the slot in use, and waits.
    _remedy_when_aborted = (
        "wait: the bridge goes on from the stored progress by itself; this process or the brokers hung"
    )
    _remedy_when_unanswered = BROKERS_AWAY
    _remedy_when_fenced = "leave this one waiting, when a second bridge is meant to run; otherwise stop one of the two"

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        transactional_id: str,
        max_message_bytes: int,
        history: HistoryEncoder | None = None,
        rows: RowProducer | None = None,
    ) -> None:
        super().__init__(
            options,
            transactional_id=transactional_id,
            max_message_bytes=max_message_bytes,
            before_begin=self._await_rows,
        )
        self._history = history
        self._rows = rows
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._writing: Future[None] | None = None

    def start(self) -> None:
        """Fence earlier producers, as ``TransactionalProducer.start``; then wait a moment for the rows' brokers."""
        super().start()
        if self._rows is not None:
            self._rows.connect()

    @property
    def queued(self) -> int:
        """Records that Kafka does not have yet, as far as ``relieve`` was told."""
        return len(self._producer) + (0 if self._rows is None else len(self._rows))

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes, old: bytes | None = None) -> None:
        """Add a record to the open Kafka transaction, opening one if there is none; waits while the queue is full.

        Args:
            topic, key, value, header: the record; the topic's history, if it has one, gets a record as well.
            old: the row before, for the history.

        Raises:
            TopicRefused: the record is larger than the topic takes.
            TopicUnavailable: the Kafka transaction cannot go on.
        """
        self._add(topic, key, value, header)
        if self._history is not None and (history := self._history.topics.get(topic)) is not None:
            self._add(history, key, self._history.value(value, header, old), header)

    def produce_all(self, records: Iterable[Ready]) -> None:
        """Do what ``produce`` does for each of these, at least one, each with a header."""
        if self._history is not None:
            for record in records:
                self.produce(*record)
            return
        if not self._open:
            self._begin()
        # Without a call of ours for each: this is the hot loop
        send, topics = self._send, self._topics
        for topic, key, value, header, _ in records:
            topics.add(topic)
            try:
                send(topic, value, key, -1, None, None, 0, [("cdc", header)])
            except (BufferError, KafkaException):
                self.produce(topic, key, value, header)  # once more: it waits for room, and knows what errors say

    def bury(self, topic: str, partition: int, key: bytes, header: bytes) -> None:
        """Add a tombstone as ``produce`` does, but to this partition, to which the key does not belong."""
        self._add(topic, key, None, header, partition)

    def relieve(self) -> None:
        """Take note of what Kafka has by now, and let go of it; never waits. Unasked, the client keeps it all.

        Raises:
            TopicRefused: a row that was sent at once was refused.
            TopicUnavailable: no row can be sent any more.
        """
        if self._rows is not None:
            self._rows.poll()
        # While the thread commits, it takes the reports.
        if self._writing is None:
            self._take_reports()
        if self._rows is not None and (self._rows.failed is not None or self._rows.refusal is not None):
            raise self._row_error(self._rows)

    def send_rows(self, records: Sequence[Ready]) -> None:
        """Send rows of the stream at once, each with a header, while no Kafka transaction is open.

        Raises:
            TopicRefused: a row is larger than the topic takes, or a right is missing.
            TopicUnavailable: Kafka does not take them.
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
        """Whether Kafka does not have every row that was sent at once, as far as ``relieve`` was told."""
        return self._rows is not None and len(self._rows) > 0

    @property
    def late(self) -> Mapping[str, Collection[bytes]]:
        """Keys of rows, by topic, that Kafka may have taken when another bridge had taken over: after newer ones."""
        return {} if self._rows is None else self._rows.late

    def next_group(self) -> Group:
        """End the group of the rows that were sent at once last; an empty one where none ever is."""
        return Group() if self._rows is None else self._rows.next_group()

    def proved(self, at: float) -> None:
        """No other bridge had taken over at that moment (``time.monotonic``): rows may be waited for a while longer."""
        if self._rows is None:
            return
        self._rows.wanted_until = at + ROWS_PATIENCE_S
        if at > self._rows.late_at:  # a proof from before a standstill says nothing of rows that went out after it
            self._rows.late.clear()

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        """Write one record in a Kafka transaction of its own, beside the rows; ``is_written`` tells the outcome."""
        assert not self._open
        assert self._writing is None
        self._began_at = time.monotonic()
        self._writing = self._thread.submit(self._write, topic, key, value)

    @property
    def is_writing(self) -> bool:
        """Whether ``write`` is under way."""
        return self._writing is not None

    def is_written(self) -> bool:
        """Whether what ``write`` began is committed, told once.

        Raises:
            CdcError: as ``commit`` does.
        """
        if self._writing is None or not self._writing.done():
            return False
        writing, self._writing = self._writing, None
        writing.result()
        return True

    def close(self) -> None:
        """Take back what is not on its way, abort what is open, and end the threads; ``late`` is complete then."""
        if self._rows is not None:
            self._rows.close()
        self._failure = self._failure or TopicUnavailable(
            "this session has ended", remedy="wait: the next session sends what this one did not"
        )  # what is written waits no longer
        self._thread.shutdown(wait=True)
        super().close()

    def _await_rows(self) -> None:
        """A Kafka transaction begins once all that was sent before is there."""
        if self._writing is not None:
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
                    f"Kafka did not take the rows that were sent within {ROWS_PATIENCE_S:g} s",
                    remedy=BROKERS_AWAY,
                )

    def _write(self, topic: str, key: bytes, value: bytes) -> None:
        """In the thread. ``_open`` stays as it is: for the bridge's thread this is no Kafka transaction."""
        try:
            self._producer.begin_transaction()
            self._producer.produce(topic, value, key)
        except KafkaException as error:
            raise self._error("begin_transaction", error) from error
        self._until_done("commit_transaction", self._producer.commit_transaction, COMMIT_DEADLINE_S)

    def _row_error(self, rows: RowProducer, error: KafkaError | None = None) -> CdcError:
        """Why rows are not taken."""
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
            f"rows cannot be sent: {error.str()}",
            remedy=BROKERS_AWAY,
        )

    def _grant(self, acl: Acl) -> str:
        return acl.remedy(self._options)

    def _too_large(self, topic: str, key: bytes, header: bytes, size: str) -> TopicRefused:
        at = f" at LSN {header_position(header).lsn}" if header else ""
        return TopicRefused(
            f"the row with key {key.decode(errors='replace')}{at} is too large for topic {topic!r} ({size})",
            remedy=f"raise topics.max_message_bytes in the configuration and max.message.bytes of topic {topic!r}; "
            f"above {MAX_MESSAGE_BYTES} bytes no row can be carried: "
            "publish the table without that column (a column list)",
        )
