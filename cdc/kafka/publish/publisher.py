"""The bridge's producer: rows and the progress that covers them become readable together, or not at all."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException

from cdc.base.broker_log import BROKERS_AWAY
from cdc.base.config.checks import MAX_MESSAGE_BYTES
from cdc.base.errors import TopicRefused
from cdc.contract.header import header_position
from cdc.contract.record import Ready
from cdc.kafka.acls import Acl
from cdc.kafka.publish.transactional import TransactionalProducer


class KafkaPublisher(TransactionalProducer):
    """A producer with a transactional id, one per bridge. Arguments and errors as for ``TransactionalProducer``."""

    # If somebody did take over meanwhile, the next attempt finds the slot in use, and waits.
    _remedy_when_aborted = (
        "wait: the bridge goes on from the stored progress by itself; this process or the brokers hung"
    )
    _remedy_when_unanswered = BROKERS_AWAY
    _remedy_when_fenced = "leave this one waiting, when a second bridge is meant to run; otherwise stop one of the two"

    @property
    def queued(self) -> int:
        """Records that Kafka does not have yet, as far as ``relieve`` was told."""
        return len(self._producer)

    def produce(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        header: bytes,
        old: bytes | None = None,  # noqa: ARG002  # see HistoryPublisher
    ) -> None:
        """Add a record to the open Kafka transaction, opening one if there is none; waits while the queue is full.

        Args:
            topic, key, value, header: the record.
            old: the row before; only a publisher that keeps a history takes notice.

        Raises:
            TopicRefused: the record is larger than the topic takes.
            TopicUnavailable: the Kafka transaction cannot go on.
        """
        self._add(topic, key, value, header)

    def produce_all(self, records: Iterable[Ready]) -> None:
        """As ``produce`` for each of them, at least one, each with a header; without a call of ours for each."""
        if not self._open:
            self._begin()
        send, topics = self._send, self._topics
        for topic, key, value, header, _ in records:
            topics.add(topic)
            try:
                send(topic, value, key, -1, None, None, 0, [("cdc", header)])
            except (BufferError, KafkaException):
                self.produce(topic, key, value, header)  # once more: it waits for room, and knows what errors say

    def bury(self, topic: str, partition: int, key: bytes, header: bytes) -> None:
        """As ``produce`` for a tombstone, but into this partition, to which the key does not belong."""
        self._add(topic, key, None, header, partition)

    def relieve(self) -> None:
        """Let go of the records that Kafka has by now; never waits. Unasked, the client keeps them until the commit."""
        self._take_reports()

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
