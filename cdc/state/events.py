"""Events, and the states that they lead to: two topics that cannot disagree, and a proof that they do not.

Theory of operation. Events go into a topic that keeps all of them; the state of each key goes into a compacted one.
Both are written in one Kafka transaction, so no reader sees an event without its state, or a state without its events.
Within the transaction, the events come first, until the brokers have acknowledged their offsets. The state follows,
with the offset of its newest event in the header. So each state is a snapshot that says which events it includes.

This makes three things possible:

- A start reads the compacted topic, and only the events after the newest snapshot of each partition. There are none,
  unless another program appended events while no writer was open, or the state topic is new.
- ``rebuild`` folds all events from the beginning.
- ``verify`` compares states and events key by key, each at the newest event that the state includes. Writers may go on
  in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Self, TypeAlias

from cdc.base.config import TopicsConfig
from cdc.base.errors import TopicRefused, VersionConflict
from cdc.state.entries import ABSENT
from cdc.state.event_log import EventLog, Folding, as_stored, event_header, event_in
from cdc.state.keys import Key, KeyFormat
from cdc.state.options import client_options
from cdc.state.reader import StateReader
from cdc.state.topics import history_topic, state_topic
from cdc.state.values import Value, decode, encode
from cdc.state.writer import FencedWriter

State: TypeAlias = dict[str, Any]
Apply: TypeAlias = Callable[[State | None, State], State | None]


class Difference(NamedTuple):
    """A key whose stored state differs from the state that its events lead to.

    Attributes:
        key: the key in both topics.
        event: the offset of the newest event that counts.
        stored: the state in the state topic, or None.
        rebuilt: the state from the events, or None.
    """

    key: bytes
    event: int
    stored: State | None
    rebuilt: State | None


class EventSourced:
    """The one writer of an event topic and of its state topic.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        events: the event topic, with ``cleanup.policy=delete``; its ``retention.ms`` should be -1.
        state: the state topic, compacted, with as many partitions.
        apply: ``apply(state, event)`` returns the state after the event. It gets None before the first event, and
            returns None to delete the state. Its result must depend on nothing else.
        key_columns: as for ``StateProducer``.
        create: how to create the topics when they are missing; with None, they must exist. Events are kept for ever,
            unless ``history_retention_ms`` is given.

    Raises:
        ConfigError: an option or a name is invalid.
        TopicRefused: a topic is missing or has the wrong policy, or events that a state still needs are gone.
        TopicUnavailable: no broker answers.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        events: str,
        state: str,
        apply: Apply,
        key_columns: Collection[str] = (),
        create: TopicsConfig | None = None,
    ) -> None:
        self._options, self._events, self._state = client_options(options), events, state
        self._apply, self._form = apply, KeyFormat(tuple(key_columns))
        if create is not None and "history_retention_ms" not in create.model_fields_set:
            create = create.model_copy(update={"history_retention_ms": -1})
        counts = history_topic(self._options, events, create), state_topic(self._options, state, create)
        if counts[0] != counts[1]:
            raise TopicRefused(
                f"topic {events!r} has {counts[0]} partitions, and topic {state!r} has {counts[1]}",
                remedy="recreate the state topic with as many partitions as the event topic: it is rebuilt from there",
            )
        self._log = EventLog(self._options, events)
        self._writer = FencedWriter(self._options, state)
        try:
            self.caught_up = self._catch_up()
            """How many keys had events that were not in their state yet when this was opened."""
        except BaseException:
            self._writer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def get(self, key: Key) -> State | None:
        """Returns the key's state, or None."""
        entry = self._writer.entries.now.get(self._form.encode(key))
        return None if entry is None else decode(entry.value)

    def version(self, key: Key) -> int:
        """Returns the offset of the newest event in the key's state; ``ABSENT`` when it has no state."""
        entry = self._writer.entries.now.get(self._form.encode(key))
        return ABSENT if entry is None else event_in(entry.header)

    def append(self, key: Key, *events: Value, expected: int | None = None) -> State | None:
        """Appends events of a key, and returns the state that they lead to. On return, readers see both.

        Args:
            key: a text, or the key columns by name.
            events: objects, which may be deltas.
            expected: the version that the key must have, ``ABSENT`` for no state; None accepts any.

        Raises:
            ValueRefused: an event or the state is not a JSON object.
            VersionConflict: the key has another version.
            FencedError: a second writer of the topics was opened.
            TopicUnavailable: Kafka does not answer. Close the writer and open it again to read back what was written.
        """
        encoded, version = self._form.encode(key), self.version(key)
        if expected not in (None, version):
            raise VersionConflict(
                f"key {encoded.decode(errors='replace')} of {self._state!r} has version {version}, not {expected}",
                remedy="get its state again, and decide again with that",
            )
        state = self.get(key)
        values = [encode(each) for each in events]
        for value in values:
            state = as_stored(self._apply(state, decode(value)))
        if values:
            with self._writer.transaction():
                for value in values:
                    self._writer.write_beside(self._events, encoded, value)
                # Not before the brokers have acknowledged the events: the state's header names the newest offset
                self._write(encoded, state, self._writer.flush()[self._events, encoded])
        return state

    def rebuild(self) -> dict[bytes, State]:
        """Returns the state of every key, from its events alone.

        Raises:
            TopicRefused: the first events are gone.
            TopicUnavailable: no broker answers.
        """
        folding = Folding(self._apply)
        folding.take(self._log.read())
        return {key: each.state for key, each in folding.now.items() if each.state is not None}

    def verify(self) -> list[Difference]:
        """Folds all events, and compares the result with the state topic as readers see it. An empty list is the proof.

        Raises:
            TopicRefused: the first events are gone, so nothing can be proven.
            TopicUnavailable: no broker answers.
        """
        certain = self._log.ends()  # asked first: the states read next include every event below these offsets
        with StateReader(self._options, self._state) as reader:
            reader.load()
            stored = {key: entry for key in reader if (entry := reader.get(key)) is not None}
        at = {key: event_in(entry.header) for key, entry in stored.items()}
        folding = Folding(self._apply)
        for record in self._log.read():
            key = record.key or b""
            if key in at:
                is_in_state = record.offset <= at[key]
            else:
                # An event after ``certain`` may have deleted a key that has no stored state: fold on to that event
                is_alive = (folded := folding.now.get(key)) is not None and folded.state is not None
                is_in_state = record.offset < certain[record.partition] or is_alive
            if is_in_state:
                folding.take([record])
        found = []
        for key in stored.keys() | folding.now.keys():
            folded = folding.now.get(key)
            rebuilt = None if folded is None else folded.state
            state = decode(stored[key].value) if key in stored else None
            if rebuilt != state:
                found.append(Difference(key, at.get(key, folded.event if folded else ABSENT), state, rebuilt))
        return sorted(found)

    def close(self) -> None:
        """Closes the connections."""
        self._writer.close()

    def _write(self, key: bytes, state: State | None, event: int) -> None:
        self._writer.write(key, None if state is None else encode(state), event_header(event))

    def _catch_up(self) -> int:
        """Writes the states that lack events, and counts them.

        One Kafka transaction writes them all. If only some were written, their snapshots would hide from the next start
        that other keys lack earlier events.
        """
        folding = Folding(self._apply)
        starts = {partition: newest + 1 for partition, newest in self._snapshots().items()}
        late = [each for each in self._log.read(starts) if each.key is not None and each.value is not None]
        for each in late:
            entry = self._writer.entries.now.get(each.key or b"")
            if entry is not None:
                folding.start(each.key or b"", decode(entry.value), event_in(entry.header))
        # A key without a state has no snapshot: its events before the partition's newest snapshot count, too
        unknown = {each.key for each in late if each.key not in folding.now}
        earlier = (each for each in self._log.read() if each.key in unknown) if unknown else ()
        folding.take(earlier)
        folding.take(each for each in late if each.key not in unknown)
        stored = self._writer.entries.now
        count = 0
        with self._writer.transaction():
            for key, folded in folding.now.items():
                if key not in stored:
                    lacks_events = folded.state is not None
                else:
                    lacks_events = folded.event > event_in(stored[key].header)
                if lacks_events:
                    self._write(key, folded.state, folded.event)
                    count += 1
        return count

    def _snapshots(self) -> dict[int, int]:
        """Returns by partition the newest event that any state includes."""
        newest: dict[int, int] = {}
        for key, entry in self._writer.entries.now.items():
            partition = self._log.partition_of(key)
            newest[partition] = max(newest.get(partition, ABSENT), event_in(entry.header))
        return newest
