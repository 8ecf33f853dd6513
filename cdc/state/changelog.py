"""A service's own state, kept in a changelog topic: what it counted survives the process, and is never counted twice.

Theory of operation. The service reads a source topic as one consumer group. Each partition of the source has its own
state, in the partition of the same number of the changelog. A step reads some records, lets the handler change the
state, and then commits one Kafka transaction that holds both the new values and the group's next offsets. So the
changelog and the offsets never differ: either the step happened, with both, or it did not.

When partitions come to this instance, at the start as after another one died, its state is read back from the
changelog: after the group's offsets are known for certain (``GroupReader`` says why in this order), and up to the
changelog's end. Every record of the changelog names the source offset that made it, so a changelog that is ahead of the
group's offsets is seen, and refused: somebody moved the offsets by hand, and going on would count records twice. Beside
the offsets stands which topic the changelog is, so one that was made anew is seen, too: going on would forget all that
was counted.
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
"""What Kafka gives a step between its first record and its commit: milliseconds, unless the brokers hang. An heir of
another name cannot end the Kafka transaction of an instance that died within a step, and what that one holds open hides
the end of the changelog: so it waits for Kafka, which looks every ten seconds for transactions whose time is over. Both
times, of the session and of the transaction, run from the death on, not one after the other."""


class PartitionState:
    """The state that belongs to one partition of the source, as a handler sees it. Keys are the service's own."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self._values = values
        self._changes: dict[bytes, tuple[bytes | None, int]] = {}
        self.source_offset = 0

    def get(self, key: bytes) -> dict[str, Any] | None:
        """What the key holds, None for nothing. A copy: only ``put`` changes the state."""
        value = self._changes[key][0] if key in self._changes else self._values.get(key)
        return None if value is None else decode(value)

    def put(self, key: bytes, value: Value) -> None:
        """Let the key hold this value, whole.

        Raises:
            ValueRefused: no object, or JSON cannot say what is in it.
        """
        self._changes[key] = encode(value), self.source_offset

    def delete(self, key: bytes) -> None:
        """Let the key hold nothing."""
        self._changes[key] = None, self.source_offset

    def items(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Every key that holds something, with what it holds."""
        for key in self._values.keys() | self._changes.keys():
            content = self.get(key)
            if content is not None:
                yield key, content

    def changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """What this step changed: key, value, and the source offset that did."""
        for key, (value, offset) in self._changes.items():
            yield key, value, offset

    def keep(self) -> None:
        """The step is committed."""
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
        app: name of the service.
        store: name of the state. ``{app}-{store}`` is the consumer group, ``{app}-{store}-changelog`` the changelog.
        source: the topic that is read.
        instance: stable name of this instance. A restarted one fences its former self and goes on at once; another name
            waits ten seconds until the group gives it the partitions, and up to thirty if the one before died in the
            middle of a commit.
        topics: how to make the changelog; its partitions are as many as the source's.

    Raises:
        ConfigError: an option or a name is wrong.
        TopicRefused: there is no source topic; the changelog is not compacted, or has another number of partitions.
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
            raise ConfigError("the instance has no name", remedy="name it after its place, for instance its ordinal")
        self._parts: dict[int, PartitionState] = {}
        self._changelog_id = ""
        self._count = self._match_partitions(topics or TopicsConfig())
        self._producer = ApplicationProducer(
            {"transaction.timeout.ms": _STEP_S * 1000, **self._options},
            transactional_id=f"{self._changelog}-{instance}",
            max_message_bytes=_MAX_MESSAGE_BYTES,
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
        """Read what there is, have it handled, and commit state and offsets together; how many records that were.

        Whatever goes wrong closes the store, and nothing of the step has happened: open it again, and it goes on behind
        the last step that did. The partitions of this instance may change at the beginning of a step, never within.

        Args:
            handle: called with each record and its partition's state, in the order of each partition. It may be called
                again with the same record after a crash, and must have no effect but on the state.
            timeout_s: how long to wait for a first record.

        Raises:
            FencedError: another process runs under this instance's name.
            TopicUnavailable: Kafka does not answer, or gave our partitions to another instance: open it again.
            TopicRefused: the changelog does not fit the group's offsets, or a right is missing.
        """
        if self._is_closed:
            raise TopicUnavailable("this store is closed", remedy="open it again: it goes on behind the last step")
        try:
            records = self._reader.poll(_RECORDS_PER_STEP, timeout_s)
            if records:
                self._commit(records, handle)
        except BaseException:
            self.close()
            raise
        return len(records)

    def close(self) -> None:
        """Abort what is open, and let the brokers go; what was committed stays."""
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
        """These partitions are ours: read their state back."""
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
        """The changelog is the topic with which the group's offsets were committed."""
        facts = topic_facts(BrokerAdmin(self._options), [self._changelog]).get(self._changelog)
        self._changelog_id = "" if facts is None else facts.topic_id
        if {self._changelog_id}.issuperset(expected):
            return
        raise TopicRefused(
            f"changelog {self._changelog!r} was made anew, and the consumer group goes on behind what the one before "
            "held: all that was counted until then would be missing",
            remedy="decide from where it is to count, and reset the group (kafka-consumer-groups.sh --reset-offsets): "
            "with --to-earliest everything that the source still has is counted anew",
        )

    def _check(self, record: StoredRecord, committed: Committed | None) -> None:
        """A value in the changelog was made by a record before the group's offset."""
        made_by = _source_offset(record)
        if committed is None or made_by >= committed.offset:
            known = "does not know" if committed is None else f"puts at {committed.offset}"
            raise TopicRefused(
                f"changelog {self._changelog!r} holds what offset {made_by} of partition {record.partition} of "
                f"{self._source!r} made, which the consumer group {known}: records would be counted twice",
                remedy="set the group's offsets back (kafka-consumer-groups.sh --reset-offsets); or, to count "
                f"everything anew, delete the topic {self._changelog!r} and reset the group to the earliest offsets",
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
            remedy="give the store a new name, and let it read the source from the beginning: with another number of "
            "partitions, keys come to other instances than their state",
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
