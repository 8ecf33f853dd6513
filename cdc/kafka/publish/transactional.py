"""A producer with a transactional id: the records of one Kafka transaction become readable together, or not at all.

One Kafka transaction is open at a time; the first record begins it. librdkafka's threads send the records: this side
only enqueues them, and waits at ``commit``. A failed record makes the whole Kafka transaction fail, so only the first
error is kept, to name its key. The subclasses decide what is written and how errors describe it: ``KafkaPublisher``
for the bridge, ``ApplicationProducer`` for everybody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc.base.broker_log import BROKER_LOG
from cdc.base.errors import CdcError, FencedError, TopicRefused, TopicUnavailable
from cdc.base.waits import KAFKA_REMEDY, WAITS
from cdc.contract.header import HEADER_NAME
from cdc.kafka.acls import BRIDGE_ON_TOPICS, Acl
from cdc.kafka.brokers import CONNECTING, bad_option, connect, refused_connection
from cdc.kafka.client_threads import require_threads
from cdc.kafka.leaders import cut_off_brokers
from cdc.kafka.publish.first_records import FirstRecords
from cdc.kafka.publish.transaction_end import TransactionEndLog

COMMIT_DEADLINE_S = 60.0
_SLICE_S = 1.0
"""The longest blocking call into librdkafka: between two calls, signal handlers can run."""
_FLUSH_SLICE_S = 0.1
"""The same for a flush, which does not notice that the Kafka transaction has failed meanwhile."""

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}
TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE}
_UNAUTHORISED = {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}

_NOT_THE_CAUSE = {KafkaError._FATAL, KafkaError._STATE}
"""Codes that do not name the cause. If Kafka refuses to add a partition between two records, the call for the second
record only finds a wrong state."""

PRODUCER_SETTINGS: dict[str, Any] = {
    **CONNECTING,
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 5,
    "socket.nagle.disable": True,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 32_768,
    "transaction.timeout.ms": 60_000,
    "delivery.report.only.error": True,
}
"""Settings of every producer. ``partitioner`` is the one that every Java client uses. The queue bounds the producer's
memory; ``queue_kbytes`` enlarges it for large records, because a record larger than the queue would wait for ever.

``linger.ms`` makes few large requests under load; a commit flushes at once and does not wait for it.
"""


class TransactionalProducer:
    """Writes records in Kafka transactions. ``start`` fences all earlier producers with the same transactional id.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        transactional_id: one per writer.
        max_message_bytes: the topics' ``max.message.bytes``: a larger record is refused here, with its key.
        before_begin: called before each Kafka transaction begins.
        stores_offsets: whether the Kafka transactions take offsets of a consumer group.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    _remedy_when_aborted = "open it again, and repeat the work: this process or the brokers hung"
    _remedy_when_unanswered = "check that a broker is up and kafka.bootstrap is right; open it again once one answers"
    _remedy_when_fenced = "close this producer: only the newer one may write"

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        transactional_id: str,
        max_message_bytes: int,
        before_begin: Callable[[], None] | None = None,
        stores_offsets: bool = False,
    ) -> None:
        self._options = options
        self._before_begin = before_begin
        self._transactional_id = transactional_id
        self._open = False
        self._began_at = time.monotonic()
        self._topics: set[str] = set()
        self._failure: CdcError | None = None
        self._refused_bytes = 0
        self._ends = TransactionEndLog(options, stores_offsets=stores_offsets)
        settings = {
            **PRODUCER_SETTINGS,
            "queue.buffering.max.kbytes": queue_kbytes(max_message_bytes),
            **options,
            **cut_off_brokers(options).bootstrap(),
            **self._ends.settings,
            "transactional.id": transactional_id,
            "message.max.bytes": max_message_bytes,
            "on_delivery": self._delivery_failed,
            "error_cb": self._client_error,
        }
        self._cut_off = cut_off_brokers(options)
        self._cut_off_known = self._cut_off.found
        self._timeout_s = int(settings["transaction.timeout.ms"]) / 1_000
        require_threads()
        try:
            self._producer = Producer(settings, logger=self._ends)
        except KafkaException as error:
            raise bad_option(error) from error
        self._send = self._producer.produce
        self._first = FirstRecords(self._producer)

    @property
    def is_open(self) -> bool:
        """Whether a Kafka transaction is open: it holds records that are not committed yet."""
        return self._open

    def start(self) -> None:
        """Fence earlier producers with this transactional id, and abort what they left open.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: we may not use the transactional id.
        """
        connect(self._producer)
        with WAITS.on("kafka", "Kafka to let the producer begin", KAFKA_REMEDY):
            self._until_done("init_transactions", self._producer.init_transactions, COMMIT_DEADLINE_S)

    def commit(self) -> None:
        """Commit the open Kafka transaction; on return all of it is readable.

        Raises:
            TopicUnavailable: it was aborted, or its outcome is unknown; start again from the stored progress.
            FencedError: another producer took over.
            TopicRefused: a record or a right was refused.
        """
        if not self._open:
            return
        with WAITS.on("kafka", "Kafka to commit a transaction", KAFKA_REMEDY):
            self._until_done("commit_transaction", self._producer.commit_transaction, COMMIT_DEADLINE_S)
        BROKER_LOG.answered()
        self._first.arrived()
        self._open = False
        self._topics.clear()

    def close(self) -> None:
        """Abort an open Kafka transaction, if the brokers can be reached, and end the client's threads."""
        if self._open:
            self._open = False
            try:
                self._producer.purge()
                self._producer.abort_transaction(_SLICE_S)
            except KafkaException:
                pass  # the next start() with this transactional id aborts it
        # The client refers to our callbacks and we to the client: this breaks the cycle, so that it is freed now
        del self._send, self._first, self._producer

    def _begin(self) -> None:
        if self._before_begin is not None:
            self._before_begin()
        self._take_reports()  # what the client logged about the last end, among them
        if self._ends.is_repeated:
            raise TopicUnavailable(
                "the connection broke while Kafka ended a transaction, or took its offsets, and the client asked for "
                "that twice: if the first request is still on its way, it would reach into the next transaction",
                remedy=self._remedy_when_aborted,
            )
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._error("begin_transaction", error) from error
        self._open = True
        self._began_at = time.monotonic()
        self._first.refresh()

    def _add(self, topic: str, key: bytes, value: bytes | None, header: bytes, partition: int = -1) -> None:
        """Add a record to the open Kafka transaction, opening one if there is none; waits while the queue is full."""
        self._enqueue(topic, key, value, [(HEADER_NAME, header)] if header else None, partition)

    def _enqueue(self, topic: str, key: bytes | None, value: bytes | None, headers: Any, partition: int) -> None:
        if not self._open:
            self._begin()
        self._topics.add(topic)
        if topic not in self._first.complete:
            self._await_first(topic, key or b"", partition)
        while True:
            try:
                self._send(topic, value, key, partition, None, None, 0, headers)
                return
            except BufferError:
                self._wait_for_room()
            except KafkaException as error:
                if error.args[0].code() in TOO_LARGE:
                    header = headers[0][1] if headers else b""
                    size = len(key or b"") + len(value or b"") + sum(len(text) for _, text in headers or ())
                    raise self._too_large(topic, key or b"", header, f"{size} bytes") from error
                raise self._error("produce", error) from error

    def _await_first(self, topic: str, key: bytes, partition: int) -> None:
        try:
            must_wait = self._first.must_wait(topic, key, partition)
        except KafkaException as error:
            raise self._error("list_topics", error) from error
        if must_wait:
            self._flush()

    def _flush(self) -> None:
        """Wait until the brokers have every record.

        Raises:
            TopicUnavailable: the brokers do not take the records.
            TopicRefused: a record or a right was refused.
        """
        deadline = time.monotonic() + COMMIT_DEADLINE_S
        with WAITS.on("kafka", "Kafka to take records", KAFKA_REMEDY):
            while self._flush_left():
                # Records of a failed Kafka transaction stay in the queue for ever
                cause = self._cause()
                if cause is not None:
                    raise self._error("flush", KafkaException(cause))
                self._cut_off.refuse(self._cut_off_known)
                if time.monotonic() > deadline:
                    raise TopicUnavailable(
                        "Kafka no longer takes records: a flush did not end within a minute",
                        remedy=self._remedy_when_unanswered,
                    )
        self._first.arrived()

    def _flush_left(self) -> int:
        """Flush for a moment; returns how many records are left."""
        try:
            left = self._producer.flush(_FLUSH_SLICE_S)
        except KafkaException as error:
            raise self._error("flush", error) from error
        if self._failure is not None:
            raise self._failure
        return left

    def _wait_for_room(self) -> None:
        """Wait until the send queue has room; if it stays full for a minute, the brokers count as gone."""
        deadline = time.monotonic() + COMMIT_DEADLINE_S
        full = len(self._producer)
        with WAITS.on("kafka", "Kafka to take records: the send queue is full", KAFKA_REMEDY):
            while len(self._producer) >= full:
                try:
                    self._producer.poll(0.01)
                except KafkaException as error:
                    raise self._error("produce", error) from error
                if self._failure is not None:
                    raise self._failure
                self._cut_off.refuse(self._cut_off_known)
                if time.monotonic() > deadline:
                    raise TopicUnavailable(
                        "Kafka no longer takes records: the send queue stayed full for a minute",
                        remedy=self._remedy_when_unanswered,
                    )

    def _until_done(self, what: str, call: Any, deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                call(_SLICE_S)
                return
            except KafkaException as error:
                self._take_reports()
                if error.args[0].retriable() and time.monotonic() < deadline and self._failure is None:
                    self._cut_off.refuse(self._cut_off_known)
                    continue
                raise self._error(what, error) from error

    def _error(self, what: str, error: KafkaException) -> CdcError:
        """Translates a failed call. If a record failed, its error explains the failure better, and is returned."""
        self._take_reports()
        kafka_error: KafkaError = error.args[0]
        if kafka_error.code() in _NOT_THE_CAUSE:
            kafka_error = self._cause() or kafka_error
        if kafka_error.code() in _FENCED:
            if time.monotonic() - self._began_at > self._timeout_s:
                # The coordinator aborts an overdue transaction by bumping our epoch: to the client that looks as if a
                # newer producer had taken over, though there is none.
                return TopicUnavailable(
                    f"Kafka aborted our transaction, which was open for more than {self._timeout_s:g} s ({what})",
                    remedy=self._remedy_when_aborted,
                )
            return FencedError(
                f"another producer took over transactional id {self._transactional_id!r} ({what})",
                remedy=self._remedy_when_fenced,
            )
        if self._failure is not None:
            return self._failure
        if kafka_error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return self._unauthorised(*sorted(self._topics))
        if kafka_error.code() in _UNAUTHORISED:
            return TopicRefused(
                f"Kafka does not allow {what} for transactional id {self._transactional_id!r}: {kafka_error.str()}",
                remedy=self._grant(Acl("transactional-id", self._transactional_id, ("Write",))),
            )
        return TopicUnavailable(
            f"{what} failed: {kafka_error.str()}",
            remedy=self._remedy_when_unanswered,
        )

    def _cause(self) -> KafkaError | None:
        """Returns why the Kafka transaction failed: produce() says only that it did, transactional calls say why."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            known: KafkaError = error.args[0]
            return None if known.code() in _NOT_THE_CAUSE else known
        return None

    def _take_reports(self) -> None:
        """Run the waiting callbacks."""
        with suppress(KafkaException):  # a fatal error is raised here as well; the failed call has reported it
            self._producer.poll(0)

    def _delivery_failed(self, error: KafkaError | None, message: Message) -> None:
        # Records that an abort or close() dropped did not fail
        if error is None or error.code() in {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}:
            return
        is_too_large = error.code() in TOO_LARGE
        # Brokers refuse a batch because of its largest record, but every record of it is reported
        if self._failure is not None and not (is_too_large and 0 < self._refused_bytes < len(message)):
            return
        topic, key = message.topic() or "?", message.key() or b""
        if is_too_large:
            self._refused_bytes = len(message)
            headers: dict[str, Any] = dict(message.headers() or ())
            self._failure = self._too_large(topic, key, headers.get(HEADER_NAME, b""), "larger than the broker takes")
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._failure = self._unauthorised(topic)

    def _too_large(self, topic: str, key: bytes, header: bytes, size: str) -> TopicRefused:  # noqa: ARG002 - subclasses name them
        """The error for a record that is larger than its topic takes."""
        return TopicRefused(
            f"the value of key {key.decode(errors='replace')} is too large for topic {topic!r} ({size})",
            remedy=f"raise max.message.bytes of topic {topic!r}, or keep less in one value",
        )

    def _grant(self, acl: Acl) -> str:
        """Returns the command that grants us a right."""
        return acl.command(self._options)

    def _client_error(self, error: KafkaError) -> None:
        self._failure = self._failure or refused_connection(error)

    def _unauthorised(self, *topics: str) -> TopicRefused:
        names = ", ".join(map(repr, topics))
        return TopicRefused(
            f"not authorised to write topic {names}" if len(topics) == 1 else f"not authorised to write one of {names}",
            remedy="\n".join(self._grant(Acl("topic", topic, BRIDGE_ON_TOPICS)) for topic in topics),
        )


def queue_kbytes(max_message_bytes: int) -> int:
    """Size of the send queue: room for two of the largest records, and at least what ``PRODUCER_SETTINGS`` says."""
    return max(int(PRODUCER_SETTINGS["queue.buffering.max.kbytes"]), 2 * max_message_bytes // 1024)
