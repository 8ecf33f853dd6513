"""Reads committed records of assigned partitions, and knows how far each partition was really read.

Theory of operation. librdkafka's own position is just past the last *record* it delivered. The offsets from there to
the end of a partition often hold no records, but a Kafka transaction's commit marker, aborted records, or a gap left by
compaction. So a position here is the greater of two: the offset after the last record, and the offset of the
end-of-partition event, which the client reports past all of these.

``fence`` answers "how far must I read to have everything that was committed until now?". The last stable offset would
be wrong: Kafka writes commit markers partition by partition after the commit was decided, so a record in one partition
can be readable while records of the same Kafka transaction in another are not yet. The high watermark is right: all
records of a Kafka transaction lie below it before the commit can be decided.

If last stable offset and high watermark are equal, no Kafka transaction is open in the partition. Then the last offset
below them is a transaction marker: it cannot be a record of a Kafka transaction, because that record's marker would
have to follow. Reading up to the marker is enough. That spares the reader the wait for the end-of-partition event, and
the brokers frequent empty answers. Where records may be written without a Kafka transaction (``delivery: idempotent``),
the last offset may be such a record, and has to be read.
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
from cdc.kafka.leaders import cut_off_brokers
from cdc.kafka.replay.client import REQUEST_TIMEOUT_S, open_consumer, topic_partitions, translated
from cdc.kafka.replay.topic_facts import described_topics, high_watermarks, stable_ends, topic_facts

_ASKED_ONE_BY_ONE: Final = 10
"""Up to this many topics, metadata is asked for topic by topic; for more, one answer about all topics is faster."""


class TopicReader:
    """Reads the partitions that were added, from the given offsets on.

    Args:
        options: librdkafka settings from the configuration, ``bootstrap.servers`` among them.
        admin: asks the brokers about topics; by default the reader opens one of its own.
        stamps: put the records' timestamps (ms since 1970) into ``header``: for topics of other programs.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    def __init__(self, options: Mapping[str, Any], *, admin: BrokerAdmin | None = None, stamps: bool = False) -> None:
        self._stamps = stamps
        self._failure: CdcError | None = None
        self._positions: dict[Partition, int] = {}
        self._held: set[Partition] = set()
        self._options = options
        self._cut_off = cut_off_brokers(options)
        self._cut_off_known = self._cut_off.found
        self._consumer = open_consumer(options, error_cb=self._client_error)
        self._admin = BrokerAdmin(options) if admin is None else admin  # not ``or``: an idle client is falsy (length 0)

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Returns the topic's partitions; none when there is no such topic.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: we may not see the topic.
        """
        return topic_partitions(self._admin, topic)

    def look_at(self, topics: Collection[str]) -> dict[str, TopicFacts]:
        """Returns the brokers' facts about topics, now; leaves out topics that do not exist.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: we may not see a topic or its settings.
        """
        return topic_facts(self._admin, topics)

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Returns each topic's id with its partition count; leaves out topics that do not exist.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: we may not see a topic.
        """
        found = described_topics(self._admin, topics)
        return {topic: f"{each.topic_id}/{len(each.partitions)}" for topic, each in found.items()}

    def add(self, starts: Mapping[Partition, int]) -> None:
        """Start to read these partitions as well, from these offsets on (0: the beginning, wherever that is now).

        Raises:
            TopicUnavailable: no broker answers.
        """
        try:
            # Without this, a client that does not know the leader yet would begin to fetch half a second later.
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
        """Stop reading these partitions; ``add`` may take them up again from any offset."""
        # A pause outlasts the assignment: without this, a partition that is added again would deliver nothing.
        self.hold(self._held.difference(partitions))
        self._consumer.incremental_unassign([TopicPartition(*each) for each in partitions])
        for each in partitions:
            del self._positions[each]

    def again(self, starts: Mapping[Partition, int]) -> None:
        """Read partitions again that are already read, from these offsets on.

        Raises:
            TopicUnavailable: no broker answers.
        """
        self.remove(list(starts))
        self.add(starts)

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        """Returns up to ``max_records`` committed records; none if none came in time.

        Raises:
            TopicUnavailable: the brokers are gone, or one of them is cut off from the others.
            TopicRefused: a topic is gone, or we may not read it.
        """
        self._cut_off.refuse(self._cut_off_known)
        # consume() waits for max_records or the timeout, so this waits for one record and then takes what is there.
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
        """Returns the next offset of each partition; past markers and aborted records once their end was reported."""
        return self._positions

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        """Ask the brokers for a fence: once these positions are reached, all that is committed now has been read.

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
        """Ask the brokers for the high watermarks; records of open Kafka transactions lie below them, too.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        return high_watermarks(self._admin, partitions)

    def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Ask the brokers for the last stable offsets: up to there, reading waits for no Kafka transaction.

        Raises:
            TopicUnavailable: no broker answers.
            TopicRefused: a topic is gone, or we may not see it.
        """
        return stable_ends(self._admin, partitions)

    def hold(self, partitions: Collection[Partition]) -> None:
        """Pause exactly these partitions, until the next call says otherwise; all others are read."""
        wanted = set(partitions)
        if pause := wanted - self._held:
            self._consumer.pause([TopicPartition(*each) for each in pause])
        if resume := self._held - wanted:
            self._consumer.resume([TopicPartition(*each) for each in resume])
        self._held = wanted

    def close(self) -> None:
        """Close the connections, and end the clients' threads."""
        self._consumer.close()
        # The client refers to our callback and we to the client: this breaks the cycle, so that it is freed now
        del self._consumer, self._admin

    def _take_event(self, message: Any) -> None:
        error, topic, number = message.error(), message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._positions[topic, number] = max(self._positions[topic, number], message.offset())
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # no matter: we name a group, but never use it
            raise translated(error, topic or None, self._options)

    def _client_error(self, error: KafkaError) -> None:
        """Called inside ``consume``, through which no exception may pass: ``poll`` raises it later."""
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
