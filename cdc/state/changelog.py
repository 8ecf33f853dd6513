"""A service's own state, kept in a changelog topic: it survives the process, and no record is counted twice.

Theory of operation. The service reads a source topic as one consumer group. Each partition of the source has its own
state, in the partition of the same number of the changelog. A step reads some records, lets the handler change the
state, and commits one Kafka transaction with the new values and the group's next offsets. So changelog and offsets
always agree: a step happens with both, or not at all.

When the group assigns partitions to this instance, the store reads their state back from the changelog, up to its end.
It does so only when the group's offsets are known for certain; ``GroupReader`` says why. Two things make it refuse:

- A record of the changelog names the source offset that made it, and that offset is not before the group's. Somebody
  has moved the group's offsets by hand, so going on would count records twice.
- The group's offsets were committed with another changelog: the id of the topic is stored beside them. Somebody has
  recreated the topic, so going on would forget everything that was counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Self, TypeAlias

import orjson

from cdc.base.config import TopicsConfig
from cdc.base.errors import ConfigError, TopicRefused, TopicUnavailable
from cdc.contract.ports import Partition, StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.application import ApplicationProducer
from cdc.kafka.replay.bounded import read_to_end
from cdc.kafka.replay.group import Committed, GroupReader
from cdc.kafka.replay.topic_facts import topic_facts
from cdc.state.options import client_options
from cdc.state.topics import changelog_topic, partitions_of_topic, state_topic
from cdc.state.values import Value, decode, encode

_RECORDS_PER_STEP: Final = 500
_MAX_MESSAGE_BYTES: Final = TopicsConfig().max_message_bytes
_STEP_S: Final = 20
"""Kafka aborts a step that has not committed this long after its first record. A step takes milliseconds, unless the
brokers hang. If an instance dies within a step, its open Kafka transaction hides the end of the changelog. An instance
of another name cannot abort that transaction. It has to wait for Kafka, which looks for expired transactions every ten
seconds. The session timeout runs at the same time, not afterwards."""


class PartitionState:
    """The state that belongs to one partition of the source, as a handler sees it. The service chooses the keys."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self._values = values
        self._changes: dict[bytes, tuple[bytes | None, int]] = {}
        self.source_offset = 0

    def get(self, key: bytes) -> dict[str, Any] | None:
        """Returns a copy of the key's value, or None. Changing the copy does not change the state; ``put`` does."""
        value = self._changes[key][0] if key in self._changes else self._values.get(key)
        return None if value is None else decode(value)

    def put(self, key: bytes, value: Value) -> None:
        """Sets the key's value, and keeps nothing of the old one.

        Raises:
            ValueRefused: the value is not an object, or JSON cannot represent it.
        """
        self._changes[key] = encode(value), self.source_offset

    def delete(self, key: bytes) -> None:
        """Deletes the key."""
        self._changes[key] = None, self.source_offset

    def items(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yields every key that has a value, with the value."""
        for key in self._values.keys() | self._changes.keys():
            content = self.get(key)
            if content is not None:
                yield key, content

    def changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Yields the changes of this step: key, value, and the source offset that made the change."""
        for key, (value, offset) in self._changes.items():
            yield key, value, offset

    def keep(self) -> None:
        """Keeps the changes, since the step is committed."""
        for key, (value, _) in self._changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        self._changes.clear()


Handler: TypeAlias = Callable[[StoredRecord, PartitionState], None]


class ChangelogStore:
    """One instance of a service with state.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        app: the service's name.
        store: the state's name. ``{app}-{store}`` is the consumer group, ``{app}-{store}-changelog`` the changelog.
        source: the topic to read.
        instance: a stable name for this instance. With the same name, a restarted instance fences its predecessor and
            goes on at once. With another name, it waits ten seconds until the group assigns it the partitions, and up
            to thirty if its predecessor died during a commit.
        topics: how to create the changelog, which gets as many partitions as the source.

    Raises:
        ConfigError: an option or a name is invalid.
        TopicRefused: the source topic does not exist; or the changelog is not compacted, or has another number of
            partitions.
        TopicUnavailable: no broker answers.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        app: str,
        store: str,
        source: str,
        instance: str = "0",
        topics: TopicsConfig | None = None,
    ) -> None:
        self._options = client_options(options)
        self._source, self._changelog = source, changelog_topic(app, store)
        if not instance:
            raise ConfigError("the instance has no name", remedy="give it a stable one, for instance its ordinal")
        self._parts: dict[int, PartitionState] = {}
        self._changelog_id = ""
        self._count = self._match_partitions(topics or TopicsConfig())
        self._producer = ApplicationProducer(
            {"transaction.timeout.ms": _STEP_S * 1000, **self._options},
            transactional_id=f"{self._changelog}-{instance}",
            max_message_bytes=_MAX_MESSAGE_BYTES,
            stores_offsets=True,
        )
        self._is_closed = False
        try:
            self._producer.start()
            self._reader = GroupReader(
                self._options,
                group=f"{app}-{store}",
                instance=instance,
                topic=source,
                on_assigned=self._restore,
                on_revoked=self._let_go,
            )
        except BaseException:
            self._producer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def parts(self) -> Mapping[int, PartitionState]:
        """The committed state of the partitions that this instance owns now."""
        return self._parts

    def step(self, handle: Handler, *, timeout_s: float = 1.0) -> int:
        """Reads records, calls the handler for each, and commits state and offsets together. Returns how many it read.

        Any error closes the store, and the step has not happened. Open the store again, and it goes on after the last
        committed step. The partitions of this instance may change at the beginning of a step, but not during it.

        Args:
            handle: called with each record and its partition's state, in the order of each partition. It may be called
                again with the same record after a crash, so it must have no effect but on the state.
            timeout_s: how long to wait for a first record.

        Raises:
            FencedError: another process runs under this instance's name.
            TopicUnavailable: Kafka does not answer, or gave our partitions to another instance: open the store again.
            TopicRefused: the changelog does not match the group's offsets, or a right is missing.
        """
        if self._is_closed:
            raise TopicUnavailable("this store is closed", remedy="open it again: it goes on after the last step")
        try:
            records = self._reader.poll(_RECORDS_PER_STEP, timeout_s)
            if records:
                self._commit(records, handle)
        except BaseException:
            self.close()
            raise
        return len(records)

    def close(self) -> None:
        """Aborts an open step and closes the connections. Committed steps stay."""
        if not self._is_closed:
            self._is_closed = True
            self._reader.close()
            self._producer.close()

    def _commit(self, records: list[StoredRecord], handle: Handler) -> None:
        next_offsets: dict[Partition, int] = {}
        for record in records:
            part = self._parts[record.partition]
            part.source_offset = record.offset
            handle(record, part)
            next_offsets[record.topic, record.partition] = record.offset + 1
        for _, number in next_offsets:
            for key, value, offset in self._parts[number].changes():
                header = orjson.dumps({"source": offset})
                self._producer.produce(self._changelog, key, value, header, number)
        self._producer.add_offsets(next_offsets, self._reader.metadata, self._changelog_id)
        self._producer.commit()
        for _, number in next_offsets:
            self._parts[number].keep()

    def _restore(self, known: Mapping[Partition, Committed | None]) -> None:
        """Reads back the state of the partitions that this instance owns now."""
        if any(number >= self._count for _, number in known):
            raise self._mismatch(max(number for _, number in known) + 1, self._count)
        self._refuse_another({each.note for each in known.values() if each is not None and each.note})
        values: dict[int, dict[bytes, bytes]] = {number: {} for _, number in known}
        for record in read_to_end(BrokerAdmin(self._options), [(self._changelog, number) for _, number in known]):
            self._check(record, known[self._source, record.partition])
            if record.key is None:
                continue
            if record.value is None:
                values[record.partition].pop(record.key, None)
            else:
                values[record.partition][record.key] = record.value
        self._parts = {number: PartitionState(part) for number, part in values.items()}

    def _let_go(self, partitions: Collection[Partition]) -> None:
        for _, number in partitions:
            self._parts.pop(number, None)

    def _refuse_another(self, expected: Collection[str]) -> None:
        """Refuses a changelog that is not the topic with which the group's offsets were committed."""
        facts = topic_facts(BrokerAdmin(self._options), [self._changelog]).get(self._changelog)
        self._changelog_id = "" if facts is None else facts.topic_id
        if {self._changelog_id}.issuperset(expected):
            return
        raise TopicRefused(
            f"changelog {self._changelog!r} was recreated, but the consumer group still has the offsets of the old "
            "one: everything counted before them would be missing",
            remedy="decide where to start counting, and reset the group (kafka-consumer-groups.sh --reset-offsets): "
            "with --to-earliest it counts everything that the source still has",
        )

    def _check(self, record: StoredRecord, committed: Committed | None) -> None:
        """Refuses a changelog record that was made by a source record which the group has yet to read."""
        made_by = _source_offset(record)
        if committed is None or made_by >= committed.offset:
            known = "does not know" if committed is None else f"puts at {committed.offset}"
            raise TopicRefused(
                f"changelog {self._changelog!r} has counted offset {made_by} of partition {record.partition} of "
                f"{self._source!r}, which the consumer group {known}: records would be counted twice",
                remedy="restore the group's offsets (kafka-consumer-groups.sh --reset-offsets); or, to count "
                f"everything again, delete the topic {self._changelog!r} and reset the group to the earliest offsets",
            )

    def _match_partitions(self, topics: TopicsConfig) -> int:
        count = len(partitions_of_topic(BrokerAdmin(self._options), self._source))
        found = state_topic(self._options, self._changelog, topics.model_copy(update={"partitions": count}))
        if found != count:
            raise self._mismatch(count, found)
        return count

    def _mismatch(self, count: int, found: int) -> TopicRefused:
        return TopicRefused(
            f"changelog {self._changelog!r} has {found} partitions, and its source {self._source!r} has {count}",
            remedy="give the store a new name, and let it read the source from the beginning: keys have moved to other "
            "partitions than their state",
        )


def _source_offset(record: StoredRecord) -> int:
    try:
        return int(orjson.loads(record.header)["source"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise TopicRefused(
            f"offset {record.offset} of partition {record.partition} of {record.topic!r} does not say which source "
            "record made it: it was not written by a ChangelogStore",
            remedy="give the store a name of its own",
        ) from None
