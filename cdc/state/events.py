"""Events, and the state that they come to: two topics that cannot disagree, and a proof that they do not.

Theory of operation. Events go into a topic that keeps all of them; the state of each key goes into a compacted one.
Both are written in one Kafka transaction, so no reader sees an event without its state, or a state without its events.
The order within it: the events first, until the brokers have told their offsets; then the state, with the offset of its
newest event in the header. That makes each state a snapshot that says which events are in it.

So three things are possible. A start reads the compacted topic, and of the events only what lies behind the newest
snapshot of each partition: nothing, unless another program appended events while no writer was open, or the state topic
is new. ``rebuild`` folds all events from the beginning. And ``verify`` compares the two, key by key, each at the very
event at which its state was taken; writers may go on meanwhile.
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
    """A key whose state is not what its events come to; None for no state.

    Attributes:
        key: of both topics.
        event: offset of the newest event that counts.
        stored: in the state topic.
        rebuilt: from the events.
    """

    key: bytes
    event: int
    stored: State | None
    rebuilt: State | None


class EventSourced:
    """The one writer of an event topic and of its state topic.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        events: topic with ``cleanup.policy=delete``, whose ``retention.ms`` should be -1.
        state: compacted topic, with as many partitions.
        apply: ``apply(state, event)`` returns the state behind the event; None before the first one, and for no state
            any more. It must depend on nothing else.
        key_columns: as for ``StateProducer``.
        create: how to make the topics when they are missing; None: they must be there. Events are kept for ever,
            unless ``history_retention_ms`` is given.

    Raises:
        ConfigError: an option or a name is wrong.
        TopicRefused: a topic is missing or has the wrong policy, or events of a key that has no state are gone.
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
                remedy="make the state topic anew with as many partitions as the events have; it is rebuilt from them",
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
        """The key's state, None for none."""
        entry = self._writer.entries.now.get(self._form.encode(key))
        return None if entry is None else decode(entry.value)

    def version(self, key: Key) -> int:
        """The offset of the newest event in the key's state; ``ABSENT`` when it has none."""
        entry = self._writer.entries.now.get(self._form.encode(key))
        return ABSENT if entry is None else event_in(entry.header)

    def append(self, key: Key, *events: Value, expected: int | None = None) -> State | None:
        """Append events of a key, and return the state that they come to. On return, readers see both.

        Args:
            key: a text, or the key columns by name.
            events: objects; deltas are welcome here.
            expected: the version that the key has to have, ``ABSENT`` for none; None takes any.

        Raises:
            ValueRefused: an event, or the state, is no JSON object.
            VersionConflict: the key has another version.
            FencedError: a second writer of the topics was opened.
            TopicUnavailable: Kafka does not answer. Close, and open again: whether it was written is read back then.
        """
        encoded, version = self._form.encode(key), self.version(key)
        if expected not in (None, version):
            raise VersionConflict(
                f"key {encoded.decode(errors='replace')} of {self._state!r} has version {version}, not {expected}",
                remedy="get its state again, and decide anew with what it is now",
            )
        state = self.get(key)
        values = [encode(each) for each in events]
        for value in values:
            state = as_stored(self._apply(state, decode(value)))
        if values:
            with self._writer.transaction():
                for value in values:
                    self._writer.write_beside(self._events, encoded, value)
                self._write(encoded, state, self._writer.flush()[self._events, encoded])
        return state

    def rebuild(self) -> dict[bytes, State]:
        """The state of every key, from its events alone.

        Raises:
            TopicRefused: the first events are gone.
            TopicUnavailable: no broker answers.
        """
        folding = Folding(self._apply)
        folding.take(self._log.read())
        return {key: each.state for key, each in folding.now.items() if each.state is not None}

    def verify(self) -> list[Difference]:
        """Fold all events, and compare with the state topic as readers see it; no difference is the proof.

        Raises:
            TopicRefused: the first events are gone, so nothing can be proven.
            TopicUnavailable: no broker answers.
        """
        certain = self._log.ends()  # what is committed here has its state in what is read next
        with StateReader(self._options, self._state) as reader:
            reader.load()
            stored = {key: entry for key in reader if (entry := reader.get(key)) is not None}
        at = {key: event_in(entry.header) for key, entry in stored.items()}
        folding = Folding(self._apply)
        for record in self._log.read():
            key = record.key or b""
            # A key without a state may just have been deleted: then one of the next events does that.
            is_alive = (folded := folding.now.get(key)) is not None and folded.state is not None
            if record.offset <= at[key] if key in at else record.offset < certain[record.partition] or is_alive:
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
        """Let the brokers go."""
        self._writer.close()

    def _write(self, key: bytes, state: State | None, event: int) -> None:
        self._writer.write(key, None if state is None else encode(state), event_header(event))

    def _catch_up(self) -> int:
        """Write the states that lack events, and count them. All at once: half of them would pass for snapshots."""
        folding = Folding(self._apply)
        starts = {partition: newest + 1 for partition, newest in self._snapshots().items()}
        late = [each for each in self._log.read(starts) if each.key is not None and each.value is not None]
        for each in late:
            entry = self._writer.entries.now.get(each.key or b"")
            if entry is not None:
                folding.start(each.key or b"", decode(entry.value), event_in(entry.header))
        # Of a key without a state, what lies before the newest snapshot counts as well: its state was deleted.
        unknown = {each.key for each in late if each.key not in folding.now}
        earlier = (each for each in self._log.read() if each.key in unknown) if unknown else ()
        folding.take(earlier)
        folding.take(each for each in late if each.key not in unknown)
        stored = self._writer.entries.now
        count = 0
        with self._writer.transaction():
            for key, folded in folding.now.items():
                is_behind = (
                    folded.state is not None if key not in stored else folded.event > event_in(stored[key].header)
                )
                if is_behind:
                    self._write(key, folded.state, folded.event)
                    count += 1
        return count

    def _snapshots(self) -> dict[int, int]:
        """By partition, the newest event that a state has in it."""
        newest: dict[int, int] = {}
        for key, entry in self._writer.entries.now.items():
            partition = self._log.partition_of(key)
            newest[partition] = max(newest.get(partition, ABSENT), event_in(entry.header))
        return newest
