"""An application's producer: writes records to any topics, and a consumer group's offsets, in one Kafka transaction.

In addition to what ``TransactionalProducer`` does, it remembers the offset of each record. So the writer of a topic
knows the version of every key without reading its own records back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from cdc.base.errors import TopicUnavailable
from cdc.contract.ports import Partition
from cdc.kafka.publish.transactional import TransactionalProducer

_FLUSH_DEADLINE_S: Final = 60.0
_NOT_OURS: Final = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
"""The group coordinator's answers to a member of an older generation of the group."""


class ApplicationProducer(TransactionalProducer):
    """An application's producer with a transactional id. Other arguments and errors as for ``TransactionalProducer``.

    Args:
        stores_offsets: whether ``add_offsets`` will be called.
    """

    _remedy_when_fenced = (
        "stop one of the two instances, or give each a name of its own: the one that started later is the only writer "
        "now, and nothing of this instance's open Kafka transaction is readable"
    )

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        transactional_id: str,
        max_message_bytes: int,
        stores_offsets: bool = False,
    ) -> None:
        super().__init__(
            {**options, "delivery.report.only.error": False},
            transactional_id=transactional_id,
            max_message_bytes=max_message_bytes,
            stores_offsets=stores_offsets,
        )
        self._offsets: dict[tuple[str, bytes], int] = {}
        self._undelivered: KafkaError | None = None

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes = b"", partition: int = -1) -> None:
        """Add a record to the open Kafka transaction, opening one if there is none; waits while the queue is full.

        Args:
            topic, key, value: the record; a value of None deletes the key.
            header: value of the record's one header, ``cdc``; empty for a record without headers.
            partition: -1 for the partition that the key belongs to.

        Raises:
            TopicRefused: the record is larger than the topic takes.
            TopicUnavailable: the Kafka transaction cannot go on.
        """
        self._add(topic, key, value, header, partition)

    def flush(self) -> Mapping[tuple[str, bytes], int]:
        """Wait until the brokers have every record. Returns the offset of the newest record of each topic and key.

        Raises:
            TopicUnavailable: the brokers do not take the records.
            TopicRefused: a record or a right was refused.
        """
        self._flush()
        return self._offsets

    def _flush_left(self) -> int:
        left = super()._flush_left()
        if self._undelivered is not None:
            self._raise_why(self._undelivered)
        return left

    def _raise_why(self, undelivered: KafkaError) -> None:
        """Raises why a record failed. Its own report says only that it did; a commit of the transaction says why."""
        super().commit()
        raise self._error("flush", KafkaException(undelivered))

    def add_offsets(self, offsets: Mapping[Partition, int], group: Any, note: str = "") -> None:
        """Make a consumer group's next offsets part of the open Kafka transaction, opening one if there is none.

        Args:
            offsets: the next offset of each partition.
            group: ``GroupReader.metadata`` of the reader that owns these partitions.
            note: stored with each offset; ``GroupReader`` returns it with the offset.

        Raises:
            TopicUnavailable: the group has meanwhile given a partition to another instance.
            FencedError: another process joined the group under this instance's name.
        """
        if not self._open:
            self._begin()
        places = [TopicPartition(topic, number, at, metadata=note) for (topic, number), at in offsets.items()]
        try:
            self._until_done(
                "send_offsets_to_transaction",
                lambda slice_s: self._producer.send_offsets_to_transaction(places, group, slice_s),
                _FLUSH_DEADLINE_S,
            )
        except TopicUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, KafkaException) and cause.args[0].code() in _NOT_OURS:
                raise TopicUnavailable(
                    "the consumer group gave our partitions to another instance, because this one was silent",
                    remedy="open it again: the other instance processes what this one had read",
                ) from cause
            raise

    def commit(self) -> None:
        """Commit the open Kafka transaction; on return all of it is readable. Raises what the superclass raises."""
        super().commit()
        self._forget()

    def abort(self) -> None:
        """Drop the open Kafka transaction, if there is one; the next record begins a new one.

        Raises:
            FencedError: another producer took over.
            TopicUnavailable: the brokers do not answer.
        """
        if self._open:
            self._open = False
            self._until_done("abort_transaction", self._producer.abort_transaction, _FLUSH_DEADLINE_S)
            self._until_reported()
        self._failure = None
        self._first.forget()
        self._topics.clear()
        self._forget()

    def _until_reported(self) -> None:
        """Take the reports of all dropped records. A report that came later would count for the next transaction."""
        deadline = time.monotonic() + _FLUSH_DEADLINE_S
        while len(self._producer):
            self._producer.poll(0.01)
            if time.monotonic() > deadline:
                raise TopicUnavailable(
                    "the Kafka client still holds records of an aborted transaction after a minute",
                    remedy="open it again: nothing of this Kafka transaction is readable",
                )

    def _forget(self) -> None:
        self._offsets, self._undelivered = {}, None

    def _delivery_failed(self, error: KafkaError | None, message: Message) -> None:
        topic, offset = message.topic(), message.offset()
        if error is None and topic is not None and offset is not None:
            self._offsets[topic, message.key() or b""] = offset
        self._undelivered = self._undelivered or error
        super()._delivery_failed(error, message)
