"""An idempotent producer for rows: keeps their order without Kafka transactions, and knows which ones Kafka has.

Each partition always holds a prefix of the rows that were sent to it. The client repeats unanswered requests in order.
If brokers refuse a row, the client stops for good rather than skip it; after a row that the client gave up by itself,
this producer sends nothing more. For the same reason no row may time out by itself: whoever has waited long enough
purges all that is left, and opens a new producer.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc.base.broker_log import BROKER_LOG, BROKERS_AWAY
from cdc.base.errors import CdcError, TopicUnavailable
from cdc.contract.cloud_events import CloudEvents
from cdc.contract.header import HEADER_NAME
from cdc.contract.record import Ready
from cdc.kafka.brokers import bad_option, connect, refused_connection
from cdc.kafka.client_threads import require_threads
from cdc.kafka.leaders import cut_off_brokers
from cdc.kafka.publish.first_records import FirstRecords
from cdc.kafka.publish.transactional import PRODUCER_SETTINGS, TOO_LARGE, queue_kbytes

ROWS_PATIENCE_S: Final = 2.5
"""Rows that Kafka has not acknowledged after this time are taken back: another bridge may have taken over meanwhile."""
_REPORT_S: Final = 1.0
_MAX_QUEUED: Final = 20_000
"""Few enough rows to be sent well within ``ROWS_PATIENCE_S``."""
_PURGED: Final = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_NEVER_TAKEN: Final = TOO_LARGE
"""Only a row that failed with one of these is surely not in Kafka. Any other failed row may be: its request may have
been on its way. That includes rows purged from the client's queue, because a row returns to that queue when its
connection is lost, or when a broker has written it and then fails."""


class Group:
    """Counts the rows sent between two calls of ``next_group``, and how many of them Kafka has acknowledged."""

    __slots__ = ("acked", "sent")

    def __init__(self) -> None:
        self.sent = self.acked = 0

    @property
    def is_acked(self) -> bool:
        """Whether Kafka has all rows of the group."""
        return self.acked == self.sent


class RowRejected(Exception):
    """The producer takes no more rows, because of ``error``. ``record`` caused it; None if an earlier one did."""

    def __init__(self, record: Ready | None, error: KafkaError) -> None:
        self.record = record
        self.error = error
        super().__init__(error)


class RowProducer:
    """Sends rows in order without Kafka transactions. One thread calls all methods.

    Args:
        options: librdkafka settings.
        max_message_bytes: the topics' ``max.message.bytes``.
        events: makes the headers of CloudEvents; None when records have none.

    Attributes:
        refusal: why the brokers refuse the connection; None if they do not.
        late: by topic, keys of rows that Kafka took, or may have taken, after ``wanted_until``.
        late_at: when the last late row was reported; seconds of ``time.monotonic``.
        wanted_until: when to stop waiting for Kafka to take rows; seconds of ``time.monotonic``.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    def __init__(
        self, options: Mapping[str, Any], *, max_message_bytes: int, events: CloudEvents | None = None
    ) -> None:
        settings = {
            **PRODUCER_SETTINGS,
            "queue.buffering.max.kbytes": queue_kbytes(max_message_bytes),
            "queue.buffering.max.messages": _MAX_QUEUED,
            "linger.ms": 0,
            **options,
            **cut_off_brokers(options).bootstrap(),
            "message.max.bytes": max_message_bytes,
            "enable.gapless.guarantee": True,
            "message.timeout.ms": 0,
            "delivery.report.only.error": False,
            "error_cb": self._client_error,
        }
        require_threads()
        try:
            self._producer = Producer(settings, logger=BROKER_LOG)
        except KafkaException as error:
            raise bad_option(error) from error
        self._send = self._producer.produce if events is None else events.sender(self._producer.produce)
        self._first = FirstRecords(self._producer)
        self._group = Group()
        self._delivered = self._reports(self._group)
        self._failed: tuple[KafkaError, Message | None] | None = None
        self.refusal: CdcError | None = None
        self.wanted_until = math.inf
        self.late = defaultdict[str, set[bytes]](set)
        self.late_at = -math.inf

    def connect(self) -> None:
        """Wait up to a second for a broker, so that the first rows need not wait."""
        connect(self._producer)

    def __len__(self) -> int:
        """Number of rows that Kafka has not acknowledged, as of the last ``poll``."""
        return len(self._producer)

    @property
    def failed(self) -> tuple[KafkaError, Message | None] | None:
        """Why a row failed, and that row's message, if known; None while no row has failed."""
        return self._failed

    def send(self, records: Iterable[Ready]) -> None:
        """Send rows, each with a header; waits while the queue is full.

        The client goes on after a row that it gave up by itself, for example because no broker knew the topic for a
        moment. So this method first asks whether a row failed: a row after a missing one would wrongly show that
        everything before it is in the partition.

        Raises:
            RowRejected: a row is larger than the topic takes, or the producer has failed for good.
            TopicUnavailable: the queue stayed full, or a partition's first row was not taken.
        """
        self.poll()
        if self._failed is not None:
            raise RowRejected(None, self._failed[0])
        self._first.refresh()
        group, produce, delivered, complete = self._group, self._send, self._delivered, self._first.complete
        for record in records:
            topic, key, value, header, _ = record
            if topic not in complete:
                self._await_first(record)
            while True:
                try:
                    produce(topic, value, key, -1, delivered, None, 0, [(HEADER_NAME, header)])
                    break
                except BufferError:
                    self._wait_until_queued(len(self._producer) - 1)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError._FATAL:
                        self.poll(_REPORT_S)
                    raise RowRejected(record, error.args[0]) from error
            group.sent += 1

    def poll(self, timeout_s: float = 0) -> None:
        """Take the waiting delivery reports."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            deadline = time.monotonic() + _REPORT_S  # the exception is general; the refused row's report says why
            while self._failed is None and time.monotonic() < deadline:
                with suppress(KafkaException):
                    self._producer.poll(0.01)
            self._failed = self._failed or (error.args[0], None)

    def deadline(self) -> float:
        """Returns until when a wait that begins now may last; seconds of ``time.monotonic``."""
        return min(time.monotonic() + ROWS_PATIENCE_S, self.wanted_until)

    def next_group(self) -> Group:
        """End and return the group of the rows that were sent last."""
        group, self._group = self._group, Group()
        self._delivered = self._reports(self._group)
        return group

    def close(self) -> None:
        """Take back unsent rows, and end the client's threads; then ``late`` is complete."""
        self._producer.purge()
        deadline = time.monotonic() + _REPORT_S
        self.poll()
        # A fatal error interrupts the poll that reports it; the remaining reports come with the next poll.
        while len(self._producer) and time.monotonic() < deadline:
            with suppress(KafkaException):
                self._producer.poll(0.01)
            self._producer.purge()  # again: a row whose connection is being lost comes back into the queue
        # The client refers to our callbacks and we to the client: this breaks the cycle, so that it is freed now
        del self._first, self._producer, self._delivered

    def _reports(self, group: Group) -> Any:
        """Returns the delivery callback for the rows of a group; one function for all of them."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            # The clock is read for each report, because the process may be stopped in the middle of a poll
            if (now := time.monotonic()) > self.wanted_until and not (error and error.code() in _NEVER_TAKEN):
                self.late[message.topic() or ""].add(message.key() or b"")
                self.late_at = now
            if error is None:
                group.acked += 1
            elif error.code() not in _PURGED and (self._failed is None or self._is_larger(error, message)):
                self._failed = error, message

        return delivered

    def _is_larger(self, error: KafkaError, message: Message) -> bool:
        """Whether this message explains the failure better than the first: brokers refuse a batch for its largest."""
        first, known = self._failed or (error, None)
        is_size = error.code() in TOO_LARGE and first.code() in TOO_LARGE
        return is_size and known is not None and len(message) > len(known)

    def _await_first(self, record: Ready) -> None:
        try:
            must_wait = self._first.must_wait(record[0], record[1])
        except KafkaException as error:
            raise RowRejected(record, error.args[0]) from error
        if must_wait:
            self._wait_until_queued(0)
            self._first.arrived()

    def _wait_until_queued(self, most: int) -> None:
        """Wait until at most this many rows are not acknowledged."""
        deadline = self.deadline()
        while len(self._producer) > most:
            self.poll(0.01)
            if self._failed is not None:
                raise RowRejected(None, self._failed[0])
            if time.monotonic() > deadline:
                raise TopicUnavailable(
                    f"Kafka has not taken the rows sent to it for up to {ROWS_PATIENCE_S:g} s",
                    remedy=BROKERS_AWAY,
                )

    def _client_error(self, error: KafkaError) -> None:
        self.refusal = self.refusal or refused_connection(error)
