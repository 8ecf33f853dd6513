"""Reads the committed records of a topic that the instances of a consumer group share among themselves.

The group decides who owns which partition. On every change, this reader first asks for the group's offsets, and waits
until no Kafka transaction holds them open. Then it tells its owner, who restores the state of the partitions. Then it
reads on. In this order, nothing of a former owner is missed: its open Kafka transaction is decided by the time the
offsets are known, and Kafka refuses whatever it begins later, because its generation of the group is over.

``ApplicationProducer.add_offsets`` stores the offsets, inside a Kafka transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from cdc.base.errors import CdcError, FencedError, TopicRefused, TopicUnavailable
from cdc.contract.header import HEADER_NAME
from cdc.contract.ports import Partition, StoredRecord
from cdc.kafka.acls import Acl
from cdc.kafka.replay.client import OFFSET_GONE, open_consumer, translated


class Committed(NamedTuple):
    """What a group has stored for a partition: its next offset, and the note committed with it, which may be empty."""

    offset: int
    note: str


Assigned: TypeAlias = Callable[[Mapping[Partition, Committed | None]], None]
Revoked: TypeAlias = Callable[[Collection[Partition]], None]

_STABLE_OFFSETS_S: Final = 90.0
"""Longer than the transaction timeout: by then Kafka has aborted what a killed instance left open."""

_SETTINGS: Final = {
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 10_000,
    "max.poll.interval.ms": 600_000,
    "enable.partition.eof": False,
}
"""An instance that is gone loses its partitions after ten seconds; one that restores state may take ten minutes.
The range strategy is eager: nobody reads while partitions move."""


def is_fenced(error: KafkaError) -> bool:
    """Whether another process joined the group under our instance name.

    The client reports this as an event of its own, or wraps it in a fatal error. Only the text is the same in both.
    """
    code = KafkaError.FENCED_INSTANCE_ID
    return error.code() == code or any(name in error.str() for name in ("FENCED_INSTANCE_ID", KafkaError(code).str()))


class GroupReader:
    """One instance of a consumer group.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        group: name of the consumer group.
        instance: stable name of this instance: with it, a restarted instance gets its partitions back at once.
        topic: the topic to read.
        on_assigned: called with the partitions that are ours now, and what the group has stored for each, or None.
        on_revoked: called with the partitions that are no longer ours.

    Raises:
        ConfigError: librdkafka knows no such option or value.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        group: str,
        instance: str,
        topic: str,
        on_assigned: Assigned,
        on_revoked: Revoked,
    ) -> None:
        self._options = options
        self._topic, self._group = topic, group
        self._name = f"instance {instance!r} of group {group!r}"
        self._owned: set[int] = set()
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._failure: CdcError | None = None
        ours = {**options, **_SETTINGS, "group.id": group, "group.instance.id": f"{group}-{instance}"}
        self._consumer: Consumer = open_consumer(ours, error_cb=self._client_error)
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    @property
    def metadata(self) -> object:
        """The group and this instance's membership, as a transactional producer needs them."""
        return self._consumer.consumer_group_metadata()

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        """Returns up to ``max_records`` committed records of our partitions; none if none came in time.

        Raises:
            TopicUnavailable: the brokers are gone.
            TopicRefused: the topic or the offset to go on from is gone, or we may not read the topic.
            FencedError: another process joined under the same instance name.
        """
        messages: list[Any] = self._consumer.consume(1, timeout_s)
        if messages:
            messages += self._consumer.consume(max_records - 1, 0)
        if self._failure is not None:
            raise self._failure
        records = []
        for message in messages:
            if message.error() is not None:
                raise self._translated(message.error(), self._topic)
            if message.partition() in self._owned:  # the partition may have been revoked between the two calls
                header = dict(message.headers() or ()).get(HEADER_NAME) or b""
                place = (message.topic(), message.partition(), message.offset())
                records.append(StoredRecord(*place, message.key(), message.value(), header))
        return records

    def close(self) -> None:
        """Close the connections. The group keeps this instance's partitions for a restart until the session expires."""
        self._on_assigned, self._on_revoked = _ignore, _ignore
        self._consumer.close()
        del self._consumer

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Called inside ``consume``, through which no exception may pass: ``poll`` raises it later."""
        try:
            stored = consumer.committed(places, timeout=_STABLE_OFFSETS_S) if places else []
            failed = next((each.error for each in stored if each.error is not None), None)
            if failed is not None:
                raise KafkaException(failed)
            known = {(each.topic, each.partition): Committed(each.offset, each.metadata or "") for each in stored}
            self._on_assigned({each: None if at.offset == OFFSET_INVALID else at for each, at in known.items()})
            self._owned = {number for _, number in known}
            start = [TopicPartition(*each, at if at >= 0 else OFFSET_BEGINNING) for each, (at, _) in known.items()]
            consumer.assign(start)
        except KafkaException as error:
            self._failure = self._translated(error.args[0], self._topic)
        except CdcError as error:
            self._failure = error

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Called inside ``consume``, as ``_assigned`` is."""
        self._owned = set()
        self._on_revoked([(each.topic, each.partition) for each in places])
        consumer.unassign()

    def _client_error(self, error: KafkaError) -> None:
        translation = self._translated(error, None)
        if isinstance(translation, FencedError) or not translation.retryable:
            self._failure = translation

    def _translated(self, error: KafkaError, topic: str | None) -> CdcError:
        if is_fenced(error):
            return FencedError(
                f"another process joined as {self._name}",
                remedy="stop one of the two processes, or give each instance a name of its own",
            )
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return TopicRefused(
                f"not authorised to read as {self._name}",
                remedy=Acl("group", self._group, ("Read",)).command(self._options),
            )
        if error.code() in OFFSET_GONE:
            return TopicRefused(
                f"topic {self._topic!r} no longer has the offset at which {self._name} has to go on: the topic was "
                "recreated, or Kafka deleted records before they were read",
                remedy="choose an offset with kafka-consumer-groups.sh --reset-offsets; records before it are not read",
            )
        if error.code() == KafkaError._TIMED_OUT:
            return TopicUnavailable(
                f"Kafka did not return the offsets of {self._name} within {_STABLE_OFFSETS_S:g} s",
                remedy="open it again: a Kafka transaction held them open, for a minute at most, or brokers were busy",
            )
        return translated(error, topic, self._options)


def _ignore(_partitions: object) -> None:
    """Ignores what the group does with our partitions while we close: our owner must not be told any more."""
