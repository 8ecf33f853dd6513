"""An event topic as a log that is read in parts, and the fold of its events into states."""

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
    """The header of a state that has this event in it, and all before."""
    return orjson.dumps({"event": event})


def event_in(header: bytes) -> int:
    """The newest event in a state; ``ABSENT`` for a state of another program."""
    try:
        return int(orjson.loads(header)["event"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return ABSENT


def as_stored(state: Any) -> dict[str, Any] | None:
    """What a state is when it comes back from its topic: JSON knows no tuples.

    Raises:
        ValueRefused: no object, or JSON cannot say what is in it.
    """
    return None if state is None else decode(encode(state))


class FoldedState(NamedTuple):
    """A state, and the offset of the newest event in it."""

    state: dict[str, Any] | None
    event: int


class Folding:
    """Events → states. Pure."""

    def __init__(self, apply: Callable[[Any, Any], Any]) -> None:
        self._apply = apply
        self.now: dict[bytes, FoldedState] = {}

    def start(self, key: bytes, state: dict[str, Any], event: int) -> None:
        """Go on from a snapshot."""
        self.now[key] = FoldedState(state, event)

    def take(self, records: Iterable[StoredRecord]) -> None:
        """Apply events in order; those that a snapshot has in it already are passed over."""
        for record in records:
            if record.key is None or record.value is None:
                continue  # no event of any key
            folded = self.now.get(record.key, FoldedState(None, ABSENT))
            if record.offset > folded.event:
                state = self._apply(folded.state, decode(record.value))
                self.now[record.key] = FoldedState(as_stored(state), record.offset)


class EventLog:
    """Reads an event topic.

    Args:
        options: librdkafka settings.
        topic: whose events are all kept.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._admin, self._topic = BrokerAdmin(options), topic
        self._partitions = partitions_of_topic(self._admin, topic)

    def partition_of(self, key: bytes) -> int:
        """Where the events of a key are."""
        return partition_of(key, len(self._partitions))

    def ends(self) -> dict[int, int]:
        """By partition, the offset below which everything is decided, and every commit readable."""
        return {number: end for (_, number), end in stable_ends(self._admin, self._partitions).items()}

    def read(self, starts: Mapping[int, int] | None = None) -> Iterator[StoredRecord]:
        """Every committed event from these offsets on, in order within each partition.

        Args:
            starts: by partition; the beginning for one that is not named.

        Raises:
            TopicRefused: what lies behind the start is gone, or the topic ends before it.
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
                    f"partition {number} of topic {self._topic!r} ends at {facts.ends[number]}, and states have event "
                    f"{start - 1} in them: it was made anew or cut short, and its next events would pass for old ones",
                    remedy="write the states of what is lost as first events into a new topic, or choose a new state "
                    "topic, which is filled from the events that are there",
                )
            if start < low[number]:
                raise TopicRefused(
                    f"events {start} to {low[number] - 1} of partition {number} of topic {self._topic!r} are gone: "
                    "what their keys come to cannot be told from the others",
                    remedy=f"keep all events: retention.ms=-1 and retention.bytes=-1 on topic {self._topic!r}; states "
                    "in the state topic are not affected",
                )
