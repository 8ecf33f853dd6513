"""The publisher of ``delivery: idempotent``: rows of the stream go out at once; all else goes in Kafka transactions.

One rule keeps the order: no Kafka transaction begins before Kafka has every row that was sent, and no row is sent
beside an open one: rows that come meanwhile go into it. So all that is not an ordinary row (definitions, backfills,
tombstones of a TRUNCATE) is written as ever, and what it says of the rows before it is true.

Progress alone need not hold up rows. It is written in a Kafka transaction of its own, by a thread, while more rows go
out: it says nothing of those.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.errors import CdcError, TopicUnavailable
from cdc.contract.record import Ready
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.row_producer import ROWS_PATIENCE_S, Group, RowProducer, RowRejected
from cdc.kafka.publish.transactional import COMMIT_DEADLINE_S, TOO_LARGE

_POLL_S: Final = 0.01


class PromptPublisher(KafkaPublisher):
    """A ``KafkaPublisher`` beside which rows go out. Arguments and errors as for that."""

    def __init__(self, options: Mapping[str, Any], *, transactional_id: str, max_message_bytes: int) -> None:
        super().__init__(options, transactional_id=transactional_id, max_message_bytes=max_message_bytes)
        self._rows = RowProducer(options, max_message_bytes=max_message_bytes)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._writing: Future[None] | None = None

    def start(self) -> None:
        super().start()
        self._rows.connect()

    @property
    def queued(self) -> int:
        """Records that Kafka does not have yet, as far as ``relieve`` was told."""
        return super().queued + len(self._rows)

    @property
    def has_rows_under_way(self) -> bool:
        """Whether Kafka does not have every row that was sent, as far as ``relieve`` was told."""
        return len(self._rows) > 0

    @property
    def late(self) -> Mapping[str, Collection[bytes]]:
        """Keys of rows, by topic, that Kafka may have taken when another bridge had taken over: behind newer ones."""
        return self._rows.late

    @property
    def is_writing(self) -> bool:
        """Whether ``write`` is under way."""
        return self._writing is not None

    def proved(self, at: float) -> None:
        """No other bridge had taken over at that moment (``time.monotonic``): rows may be waited for a while longer."""
        self._rows.wanted_until = at + ROWS_PATIENCE_S
        if at > self._rows.late_at:  # a proof from before a standstill says nothing of rows that went out after it
            self._rows.late.clear()

    def send_rows(self, records: Sequence[Ready]) -> None:
        """Send rows of the stream, each with a header, while no Kafka transaction is open.

        Raises:
            TopicRefused: a row is larger than the topic takes, or a right is missing.
            TopicUnavailable: Kafka does not take them.
        """
        assert not self._open
        try:
            self._rows.send(records)
        except RowRejected as rejected:
            if rejected.record is not None and rejected.error.code() in TOO_LARGE:
                topic, key, value, header, _ = rejected.record
                size = len(key) + len(value or b"") + len(header)
                raise self._too_large(topic, key, header, f"{size} bytes") from rejected
            raise self._row_error(rejected.error) from rejected

    def next_group(self) -> Group:
        """End the group of the rows that were sent last."""
        return self._rows.next_group()

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        """Write one record in a Kafka transaction of its own, beside the rows; ``is_written`` tells the outcome."""
        assert not self._open
        assert self._writing is None
        self._began_at = time.monotonic()
        self._writing = self._thread.submit(self._write, topic, key, value)

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

    def relieve(self) -> None:
        """Take note of what Kafka has by now; never waits.

        Raises:
            TopicRefused: a row was refused.
            TopicUnavailable: no row can be sent any more.
        """
        self._rows.poll()
        if self._writing is None:
            super().relieve()
        if self._rows.failed is not None or self._rows.refusal is not None:
            raise self._row_error()

    def close(self) -> None:
        """Take back what is not on its way, abort what is open, and end the threads; ``late`` is complete then."""
        self._rows.close()
        self._failure = self._failure or TopicUnavailable(
            "this session has ended", remedy="wait: the next session sends what this one did not"
        )  # what is written waits no longer
        self._thread.shutdown(wait=True)
        super().close()

    def _begin(self) -> None:
        """Once all that was sent is there."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()
        deadline = self._rows.deadline()
        while len(self._rows):
            self._rows.poll(_POLL_S)
            if self._rows.failed is not None or self._rows.refusal is not None:
                raise self._row_error()
            if len(self._rows) and time.monotonic() > deadline:
                raise TopicUnavailable(
                    f"Kafka did not take the rows that were sent within {ROWS_PATIENCE_S:g} s",
                    remedy=BROKERS_AWAY,
                )
        super()._begin()

    def _write(self, topic: str, key: bytes, value: bytes) -> None:
        """In the thread. ``_open`` stays as it is: for the bridge's thread this is no Kafka transaction."""
        try:
            self._producer.begin_transaction()
            self._producer.produce(topic, value, key)
        except KafkaException as error:
            raise self._error("begin_transaction", error) from error
        self._until_done("commit_transaction", self._producer.commit_transaction, COMMIT_DEADLINE_S)

    def _row_error(self, error: KafkaError | None = None) -> CdcError:
        """Why rows are not taken."""
        if self._rows.refusal is not None:
            return self._rows.refusal
        if self._rows.failed is not None:
            error, message = self._rows.failed
            if message is not None:
                self._delivery_failed(error, message)
                if self._failure is not None:
                    return self._failure
        assert error is not None
        return TopicUnavailable(
            f"rows cannot be sent: {error.str()}",
            remedy=BROKERS_AWAY,
        )
