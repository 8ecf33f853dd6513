"""An idempotent producer of rows: in order, without Kafka transactions, and it knows when Kafka has what.

What is in a partition is always a beginning of what it was given for it: the client repeats what got no answer, in
order, and stops for good rather than leave one out that brokers refuse; behind one that it gave up by itself nothing is
sent any more. So nothing may time out either: whoever has waited for long enough purges all that is left, and begins a
new one.
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
from cdc.contract.header import HEADER_NAME
from cdc.contract.record import Ready
from cdc.kafka.brokers import bad_option, connect, refused_connection
from cdc.kafka.publish.transactional import PRODUCER_SETTINGS, TOO_LARGE, queue_kbytes

ROWS_PATIENCE_S: Final = 2.5
"""Rows that Kafka does not have after so long are taken back: another bridge may have taken over meanwhile."""
_REPORT_S: Final = 1.0
_MAX_QUEUED: Final = 20_000
"""Few enough to be gone well within that."""
_PURGED: Final = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_NEVER_TAKEN: Final = TOO_LARGE
"""Of any other row that failed nobody knows whether the brokers have it: its request may have been on its way. Also of
one that is purged from the client's queue: it goes back there when its connection is lost, or a broker is in trouble
behind its writing."""


class Group:
    """Rows that were sent one after the other, until the next group began."""

    __slots__ = ("acked", "sent")

    def __init__(self) -> None:
        self.sent = self.acked = 0

    @property
    def is_acked(self) -> bool:
        """Whether Kafka has all of them."""
        return self.acked == self.sent


class RowRejected(Exception):
    """Rows are not taken, for this reason; ``record`` when it is because of that one, and not of one before it."""

    def __init__(self, record: Ready | None, error: KafkaError) -> None:
        self.record = record
        self.error = error
        super().__init__(error)


class RowProducer:
    """All its methods belong to one thread.

    Args:
        options: librdkafka settings.
        max_message_bytes: the topics' ``max.message.bytes``.

    Attributes:
        refusal: why the brokers will not have us.
        late: by topic, keys of rows that Kafka took, or may have taken, after ``wanted_until``.
        late_at: when the last of them was heard of.
        wanted_until: nobody waits for longer that Kafka takes rows; seconds of ``time.monotonic``.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    def __init__(self, options: Mapping[str, Any], *, max_message_bytes: int) -> None:
        settings = {
            **PRODUCER_SETTINGS,
            "queue.buffering.max.kbytes": queue_kbytes(max_message_bytes),
            "queue.buffering.max.messages": _MAX_QUEUED,
            "linger.ms": 0,
            **options,
            "message.max.bytes": max_message_bytes,
            "enable.gapless.guarantee": True,
            "message.timeout.ms": 0,
            "delivery.report.only.error": False,
            "error_cb": self._client_error,
        }
        try:
            self._producer = Producer(settings, logger=BROKER_LOG)
        except KafkaException as error:
            raise bad_option(error) from error
        self._group = Group()
        self._delivered = self._reports(self._group)
        self._failed: tuple[KafkaError, Message | None] | None = None
        self.refusal: CdcError | None = None
        self.wanted_until = math.inf
        self.late = defaultdict[str, set[bytes]](set)
        self.late_at = -math.inf

    def connect(self) -> None:
        """Wait a moment for a broker, so that the first rows need not."""
        connect(self._producer)

    def __len__(self) -> int:
        """Rows that Kafka may not have yet, as far as ``poll`` was told."""
        return len(self._producer)

    @property
    def failed(self) -> tuple[KafkaError, Message | None] | None:
        """Why rows were not taken, and the first of them; None as long as all are."""
        return self._failed

    def send(self, records: Iterable[Ready]) -> None:
        """Send them, each with a header; waits while the queue is full.

        What the client gives up by itself, for a topic that no broker knows for a moment, does not stop it. So it is
        asked first: a row behind one that is missing would say that all before it is there.

        Raises:
            RowRejected: one is larger than the topic takes, or the producer has failed for good.
            TopicUnavailable: the queue stayed full.
        """
        self.poll()
        if self._failed is not None:
            raise RowRejected(None, self._failed[0])
        group, produce, delivered = self._group, self._producer.produce, self._delivered
        for record in records:
            topic, key, value, header, _ = record
            while True:
                try:
                    produce(topic, value, key, -1, delivered, None, 0, [(HEADER_NAME, header)])
                    break
                except BufferError:
                    self._wait_for_room()
                except KafkaException as error:
                    if error.args[0].code() == KafkaError._FATAL:
                        self.poll(_REPORT_S)
                    raise RowRejected(record, error.args[0]) from error
            group.sent += 1

    def poll(self, timeout_s: float = 0) -> None:
        """Take note of what Kafka has by now."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            deadline = time.monotonic() + _REPORT_S  # the report on the row that was refused says why
            while self._failed is None and time.monotonic() < deadline:
                with suppress(KafkaException):
                    self._producer.poll(0.01)
            self._failed = self._failed or (error.args[0], None)

    def deadline(self) -> float:
        """Until when to wait, beginning now, for Kafka to take rows."""
        return min(time.monotonic() + ROWS_PATIENCE_S, self.wanted_until)

    def next_group(self) -> Group:
        """End the group of what was sent last."""
        group, self._group = self._group, Group()
        self._delivered = self._reports(self._group)
        return group

    def close(self) -> None:
        """Take back what is not on its way yet, and end the client's threads; ``late`` is complete then."""
        self._producer.purge()
        deadline = time.monotonic() + _REPORT_S
        self.poll()
        # A failure for good interrupts the poll that tells of it; the reports behind it are told by the next one.
        while len(self._producer) and time.monotonic() < deadline:
            with suppress(KafkaException):
                self._producer.poll(0.01)
            self._producer.purge()  # a row whose connection is just being lost comes back into the queue
        # The client holds our callbacks and we hold the client: without this it would live until a garbage collection
        del self._producer, self._delivered

    def _reports(self, group: Group) -> Any:
        """What takes the reports on a group's rows; one for all of them."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            # Asked here: a process may stand still in the middle of a poll, too
            if (now := time.monotonic()) > self.wanted_until and not (error and error.code() in _NEVER_TAKEN):
                self.late[message.topic() or ""].add(message.key() or b"")
                self.late_at = now
            if error is None:
                group.acked += 1
            elif error.code() not in _PURGED and (self._failed is None or self._is_larger(error, message)):
                self._failed = error, message

        return delivered

    def _is_larger(self, error: KafkaError, message: Message) -> bool:
        """Whether this one rather than the first explains it: the brokers refuse a batch for its largest record."""
        first, known = self._failed or (error, None)
        is_size = error.code() in TOO_LARGE and first.code() in TOO_LARGE
        return is_size and known is not None and len(message) > len(known)

    def _wait_for_room(self) -> None:
        deadline = self.deadline()
        full = len(self._producer)
        while len(self._producer) >= full:
            self.poll(0.01)
            if self._failed is not None:
                raise RowRejected(None, self._failed[0])
            if time.monotonic() > deadline:
                raise TopicUnavailable(
                    f"Kafka takes no rows: the send queue stayed full for up to {ROWS_PATIENCE_S:g} s",
                    remedy=BROKERS_AWAY,
                )

    def _client_error(self, error: KafkaError) -> None:
        self.refusal = self.refusal or refused_connection(error)
