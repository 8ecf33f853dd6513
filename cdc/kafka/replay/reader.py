"""Committed records of assigned partitions, and how far each partition was really read.

Theory of operation. librdkafka's own position stands behind the last *record* it delivered. What lies between there
and the end of a partition is often not a record: a Kafka transaction's commit marker, aborted records, a gap left by
compaction. So a position here is the greater of "behind the last record" and the offset of the end-of-partition event,
which the client reports behind all of those.

``fence`` answers "how far must I read to have everything that was committed until now?". The last stable offset would
be wrong: commit markers are written partition by partition after the commit was decided, so a record of one partition
can be readable while records of the same Kafka transaction in another are not yet. The high watermark is right: all of
a Kafka transaction's records lie below it before the commit can be decided.

Where last stable offset and high watermark are one, no Kafka transaction is open in the partition, so the last offset
below them cannot be a record of a Kafka transaction: its marker would have to follow. It is such a marker, and reading
up to it is enough. That spares a reader the wait for the end-of-partition event, and the brokers frequent empty
answers. Where records may stand without a Kafka transaction (``delivery: idempotent``), the last offset may be one of
them, and has to be read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from cdc.base.broker_log import BROKER_LOG, BROKERS_AWAY
from cdc.base.errors import CdcError, TopicUnavailable
from cdc.contract.header import HEADER_NAME
from cdc.contract.ports import Partition, StoredRecord, TopicFacts
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.client import REQUEST_TIMEOUT_S, open_consumer, topic_partitions, translated
from cdc.kafka.replay.topic_facts import described_topics, high_watermarks, stable_ends, topic_facts

_ASKED_ONE_BY_ONE: Final = 10
"""With more topics than these the client is told of all that there are: one answer, larger, but at once."""


class TopicReader:
    """Reads partitions it is told to, from offsets it is told.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        admin: whom to ask what is not in records; by default the reader has one of its own.
        stamps: records' ``header`` is their timestamp instead, ms since 1970: for topics of other programs.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    def __init__(self, options: Mapping[str, Any], *, admin: BrokerAdmin | None = None, stamps: bool = False) -> None:
        self._stamps = stamps
        self._failure: CdcError | None = None
        self._positions: dict[Partition, int] = {}
        self._held: set[Partition] = set()
        self._options = options
        self._consumer = open_consumer(options, error_cb=self._client_error)
        self._admin = BrokerAdmin(options) if admin is None else admin  # which is as false as its queue is empty

    def partitions(self, topic: str) -> Sequence[Partition]:
        """The topic's partitions; none when there is no such topic.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: we may not see the topic.
        """
        return topic_partitions(self._admin, topic)

    def look_at(self, topics: Collection[str]) -> dict[str, TopicFacts]:
        """The topics as they are now; one that does not exist is left out.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: we may not see a topic or its settings.
        """
        return topic_facts(self._admin, topics)

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """The topics' ids, with the count of their partitions; one that does not exist is left out.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: we may not see a topic.
        """
        found = described_topics(self._admin, topics)
        return {topic: f"{each.topic_id}/{len(each.partitions)}" for topic, each in found.items()}

    def add(self, starts: Mapping[Partition, int]) -> None:
        """Read these partitions too, from these offsets on (0: the beginning, wherever that is now).

        Raises:
            TopicUnavailable: no broker answers.
        """
        try:
            # A client that does not know the leader yet asks for the first offset half a second later.
            topics = {topic for topic, _ in starts}
            for topic in topics if len(topics) <= _ASKED_ONE_BY_ONE else [None]:
                self._consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise translated(error.args[0], None, self._options) from error
        self._positions.update(starts)
        self._consumer.incremental_assign(
            [TopicPartition(topic, number, offset or OFFSET_BEGINNING) for (topic, number), offset in starts.items()]
        )

    def remove(self, partitions: Collection[Partition]) -> None:
        """Read these partitions no more; ``add`` may take them up again from any offset."""
        # The client pauses a partition for ever, also beyond its assignment: added again, it would bring nothing.
        self.hold(self._held.difference(partitions))
        self._consumer.incremental_unassign([TopicPartition(*each) for each in partitions])
        for each in partitions:
            del self._positions[each]

    def again(self, starts: Mapping[Partition, int]) -> None:
        """Read partitions that are read already once more, from these offsets on.

        Raises:
            TopicUnavailable: no broker answers.
        """
        self.remove(list(starts))
        self.add(starts)

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        """Up to ``max_records`` committed records; empty when none came in time.

        Raises:
            TopicUnavailable: the brokers are gone.
            TopicRefused: a topic is gone, or we may not read it.
        """
        # With a timeout, consume() waits until all of max_records are there; so wait for one, then take what is there.
        messages: list[Any] = self._consumer.consume(1, timeout_s)
        if messages:
            messages += self._consumer.consume(max_records - 1, 0)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if messages:
            BROKER_LOG.answered()
        records: list[StoredRecord] = []
        positions, make = self._positions, StoredRecord._make
        for message in messages:
            if message.error() is not None:
                self._take_event(message)
                continue
            if self._stamps:
                header = b"%d" % message.timestamp()[1]
            else:
                headers = message.headers()
                header = headers[0][1] if headers and headers[0][0] == HEADER_NAME else _find_header(headers)
            topic, number, offset = message.topic(), message.partition(), message.offset()
            records.append(make((topic, number, offset, message.key(), message.value(), header)))
            positions[topic, number] = offset + 1
        return records

    def positions(self) -> Mapping[Partition, int]:
        """Next offset per partition, behind markers and aborted records once their end was reported."""
        return self._positions

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        """Asks the brokers now: positions that, once reached, mean that all which was committed before was read.

        Args:
            marked: topics in which every record belongs to a Kafka transaction; None for all.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        partitions = list(self._positions)
        stable = self.stable_ends(partitions)
        high = self.high_watermarks(partitions)
        return {
            each: end - 1 if end and end == stable[each] and (marked is None or each[0] in marked) else end
            for each, end in high.items()
        }

    def high_watermarks(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """End offsets, asked of the brokers now; open Kafka transactions count.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        return high_watermarks(self._admin, partitions)

    def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Last stable offsets, asked of the brokers now: how far can be read without waiting for a Kafka transaction.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        return stable_ends(self._admin, partitions)

    def hold(self, partitions: Collection[Partition]) -> None:
        """Read only the other partitions, until the next call says otherwise."""
        wanted = set(partitions)
        if pause := wanted - self._held:
            self._consumer.pause([TopicPartition(*each) for each in pause])
        if resume := self._held - wanted:
            self._consumer.resume([TopicPartition(*each) for each in resume])
        self._held = wanted

    def close(self) -> None:
        """Let the connections and the clients' threads go."""
        self._consumer.close()
        # The client holds our callback and we hold the client: without this both live until a garbage collection
        del self._consumer, self._admin

    def _take_event(self, message: Any) -> None:
        error, topic, number = message.error(), message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._positions[topic, number] = max(self._positions[topic, number], message.offset())
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # of the group that we name and never use
            raise translated(error, topic or None, self._options)

    def _client_error(self, error: KafkaError) -> None:
        """Called from inside ``consume``, which must not be left by an exception."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._failure = TopicUnavailable(
                "no Kafka broker can be reached",
                remedy=BROKERS_AWAY,
            )
            return
        translation = translated(error, None, self._options)
        if not translation.retryable:
            self._failure = translation


def _find_header(headers: Sequence[tuple[str, bytes]] | None) -> bytes:
    return next((value for name, value in headers or () if name == HEADER_NAME), b"")
