"""Reads an event topic from any event on, and folds its events into states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import orjson

from cdc.base.errors import TopicRefused
from cdc.contract.partition import partition_of
from cdc.contract.ports import StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import open_once, read_until
from cdc.kafka.replay.topic_facts import stable_ends, topic_facts
from cdc.state.entries import ABSENT
from cdc.state.topics import partitions_of_topic
from cdc.state.values import decode, encode


def event_header(event: int) -> bytes:
    """Returns the header of a state that includes this event and all before it."""
    return orjson.dumps({"event": event})


def event_in(header: bytes) -> int:
    """Returns the newest event in a state, from its header; ``ABSENT`` if another program wrote the state."""
    try:
        return int(orjson.loads(header)["event"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return ABSENT


def as_stored(state: Any) -> dict[str, Any] | None:
    """Returns a state as it would come back from its topic. For instance, JSON turns tuples into lists.

    Raises:
        ValueRefused: the state is not an object, or JSON cannot represent it.
    """
    return None if state is None else decode(encode(state))


class FoldedState(NamedTuple):
    """A state, and the offset of its newest event."""

    state: dict[str, Any] | None
    event: int


class Folding:
    """Events → states. Pure."""

    def __init__(self, apply: Callable[[Any, Any], Any]) -> None:
        self._apply = apply
        self.now: dict[bytes, FoldedState] = {}

    def start(self, key: bytes, state: dict[str, Any], event: int) -> None:
        """Starts a key from a snapshot: its state, and the newest event in it."""
        self.now[key] = FoldedState(state, event)

    def take(self, records: Iterable[StoredRecord]) -> None:
        """Applies events in order, and skips those that a snapshot already includes."""
        for record in records:
            if record.key is None or record.value is None:
                continue  # not an event of any key
            folded = self.now.get(record.key, FoldedState(None, ABSENT))
            if record.offset > folded.event:
                state = self._apply(folded.state, decode(record.value))
                self.now[record.key] = FoldedState(as_stored(state), record.offset)


class EventLog:
    """Reads an event topic.

    Args:
        options: librdkafka settings.
        topic: the event topic, which keeps all events.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._admin, self._topic = BrokerAdmin(options), topic
        self._partitions = partitions_of_topic(self._admin, topic)

    def partition_of(self, key: bytes) -> int:
        """Returns the partition that holds the events of a key."""
        return partition_of(key, len(self._partitions))

    def ends(self) -> dict[int, int]:
        """Returns by partition the last stable offset: no Kafka transaction with records below it is open."""
        return {number: end for (_, number), end in stable_ends(self._admin, self._partitions).items()}

    def read(self, starts: Mapping[int, int] | None = None) -> Iterator[StoredRecord]:
        """Yields every committed event from these offsets on, in order within each partition.

        Args:
            starts: the first offset by partition; 0 for a partition that is not named.

        Raises:
            TopicRefused: events after the start are gone, or the topic ends before it.
            TopicUnavailable: no broker answers.
        """
        wanted = {each: (starts or {}).get(each[1], 0) for each in self._partitions}
        self._refuse_lost(wanted)
        with closing(open_once(self._admin)) as reader:
            reader.add(wanted)
            yield from read_until(reader, reader.high_watermarks(self._partitions))

    def _refuse_lost(self, wanted: Mapping[tuple[str, int], int]) -> None:
        facts = topic_facts(self._admin, [self._topic])[self._topic]
        low = facts.low
        for (_, number), start in wanted.items():
            if start > facts.ends[number]:
                raise TopicRefused(
                    f"partition {number} of topic {self._topic!r} ends at {facts.ends[number]}, but states include "
                    f"event {start - 1}: the topic was recreated or truncated, and new events would pass for old ones",
                    remedy="write the current states as first events into a new topic; or choose a new state topic, "
                    "which is filled from the events that are left",
                )
            if start < low[number]:
                raise TopicRefused(
                    f"events {start} to {low[number] - 1} of partition {number} of topic {self._topic!r} are gone: "
                    "without them, the states of their keys are not known",
                    remedy=f"keep all events: retention.ms=-1 and retention.bytes=-1 on topic {self._topic!r}; states "
                    "in the state topic are not affected",
                )
