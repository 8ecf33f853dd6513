"""State topics under random steps: producer, followers and new readers hold what a dictionary holds.

A topic of the broker that the tests share, with a cleaner that compacts whatever it may. ``SEED=42`` replays a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final, TypeAlias

import pytest
from confluent_kafka import Producer
from hypothesis import strategies
from hypothesis.stateful import precondition, rule

from cdc.base.errors import FencedError, ValueRefused, VersionConflict
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import read_topic
from cdc.lab.stack import Kafka
from cdc.state import ABSENT, StateProducer, StateReader, TopicsConfig
from tests.support.names import unique
from tests.support.soak import times
from tests.support.stateful import Machine, run_machine
from tests.support.waiting import eventually

QUICKLY_CLEANED: Final = TopicsConfig(
    partitions=2, segment_ms=100, min_compaction_lag_ms=0, min_cleanable_dirty_ratio=0.01
)
COLUMNS: Final = ("region", "id")
MOST_DEATHS: Final = times(1, soak=10)

Key: TypeAlias = "Mapping[str, str | int | bool]"
Value: TypeAlias = "dict[str, Any]"

IDS: Final = (1, "1", True, 0, "", -(2**63), "é", "e\u0301", '"\\')
"""No two of these are one key, however alike they look."""
VALUES: Final[tuple[Value, ...]] = ({}, {"n": None}, {"n": 1}, {"n": 1.5, "deep": [{"é": None}, []]}, {"n": "\0"})
REFUSED: Final[tuple[Any, ...]] = (None, [], "text", {"balanceDelta": 1}, {"n": float("nan")}, {"n": 2**64})

keys = strategies.builds(
    lambda number, turned: dict([("id", number), ("region", "eu")][:: -1 if turned else 1]),
    strategies.sampled_from(IDS),
    strategies.booleans(),
)
values = strategies.sampled_from(VALUES)
expectations = strategies.sampled_from(["any", "right", "old", "absent"])


def spelled(key: Key) -> bytes:
    """The key as the bridge writes it."""
    return json.dumps({name: key[name] for name in COLUMNS}, ensure_ascii=False, separators=(",", ":")).encode()


class StateTopic(Machine):
    """A topic, its writer, a follower from the beginning, and the dictionary."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.options, self.topic = options, unique("state-")
        self.rows: dict[bytes, Value] = {}
        self.versions: dict[bytes, int] = {}
        self.deaths, self.cleaned = 0, False
        self.writer = self.opened()
        self.follower = StateReader(options, self.topic, key_columns=COLUMNS)
        self.followed: dict[bytes, int] = {}

    def opened(self) -> StateProducer:
        return StateProducer(self.options, self.topic, key_columns=COLUMNS, create=QUICKLY_CLEANED)

    @rule(key=keys, value=values | strategies.none(), expectation=expectations)
    def change(self, key: Key, value: Value | None, expectation: str) -> None:
        """Puts a key, or deletes it, if it has the version that somebody expects."""
        self._change(key, value, expectation, self.rows, frozenset())
        self._compare([key])

    @rule(
        changes=strategies.lists(strategies.tuples(keys, values | strategies.none(), expectations), max_size=5),
        fails=strategies.booleans(),
    )
    def transaction(self, changes: Sequence[tuple[Key, Value | None, str]], fails: bool) -> None:
        """All of it happens, or nothing."""
        inside, written = dict(self.rows), set[bytes]()
        try:
            with self.writer.transaction():
                for key, value, expectation in changes:
                    if self._change(key, value, expectation, inside, written):
                        written.add(spelled(key))
                    assert self.writer.get(key) == inside.get(spelled(key))
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        else:
            self.rows = inside
        self._compare([key for key, _, _ in changes])

    @rule(key=keys, value=strategies.sampled_from(REFUSED))
    def refused(self, key: Key, value: Any) -> None:
        """What is no state is not written, within a transaction or without."""
        with pytest.raises(ValueRefused):
            self.writer.put(key, value)
        with suppress(ZeroDivisionError), self.writer.transaction():
            self.writer.put(key, {"n": "not this either"})
            with pytest.raises(ValueRefused):
                self.writer.put(key, value)
            raise ZeroDivisionError
        self._compare([key])

    @rule()
    def reopen(self) -> None:
        self.writer.close()
        self.writer = self.opened()
        self._compare_all()

    @rule(key=keys)
    def take_over(self, key: Key) -> None:
        """A second writer, whom the first one does not disturb."""
        first, self.writer = self.writer, self.opened()
        with closing(first):
            for _ in range(2):
                with pytest.raises(FencedError):
                    first.put(key, {"n": "never"})
        self._compare_all()

    @precondition(lambda self: self.deaths < MOST_DEATHS)
    @rule(key=keys)
    def die_within_a_transaction(self, key: Key) -> None:
        """A writer that nobody closes, with a record that nobody commits. Kafka takes a second to abort it."""
        self.deaths += 1
        dead = Producer(
            {**self.options, "partitioner": "murmur2_random", "transactional.id": f"cdc-state-{self.topic}"}
        )
        dead.init_transactions(30)
        dead.begin_transaction()
        dead.produce(self.topic, key=spelled(key), value=b'{"n":"never"}')
        dead.flush()
        self.writer.close()
        self.writer = self.opened()
        self._compare_all()

    @rule()
    def follow(self) -> None:
        """What the follower is told leads from what it knew to what there is."""
        for change in self.follower.load():
            assert (None if change.old is None else change.old.version) == self.followed.get(change.key)
            if change.new is None:
                del self.followed[change.key]
            else:
                self.followed[change.key] = change.new.version
        self._compare_reader(self.follower)

    @rule()
    def read_from_the_beginning(self) -> None:
        with StateReader(self.options, self.topic) as reader:
            reader.load()
            self._compare_reader(reader)

    @precondition(lambda self: not self.cleaned)
    @rule(key=keys)
    def wait_for_the_cleaner(self, key: Key) -> None:
        """Once in an example, since it takes a second."""
        self.cleaned, written = True, 0

        def is_cleaned() -> bool:
            nonlocal written
            for _ in range(3):
                written += 1
                self._change(key, {"n": written}, "any", self.rows, frozenset())
            return len(list(read_topic(BrokerAdmin(self.options), self.topic))) < written

        eventually(is_cleaned)
        self._compare_all()

    def finish(self) -> None:
        self.reopen()
        self.follow()
        self.read_from_the_beginning()

    def close(self) -> None:
        self.follower.close()
        self.writer.close()

    def _change(
        self,
        key: Key,
        value: Value | None,
        expectation: str,
        rows: dict[bytes, Value],
        written: set[bytes] | frozenset[bytes],
    ) -> bool:
        """Whether it is written, into ``rows`` too; what this transaction has ``written`` has no version yet."""
        now = self.writer.version(key)
        expected = {"any": None, "right": now, "old": now - 1 if now > 0 else 10**9, "absent": ABSENT}[expectation]
        is_right = expected is None or (expected == now and spelled(key) not in written)
        try:
            if value is None:
                self.writer.delete(key, expected=expected)
            else:
                self.writer.put(key, value, expected=expected)
        except VersionConflict:
            assert not is_right
            return False
        assert is_right
        if value is None:
            rows.pop(spelled(key), None)
        else:
            rows[spelled(key)] = value
        return True

    def _compare_all(self) -> None:
        self._compare([{"region": "eu", "id": each} for each in IDS])

    def _compare(self, some: Sequence[Key]) -> None:
        """The writer knows these keys, and no version of a key comes again."""
        for key in some:
            text, version = spelled(key), self.writer.version(key)
            assert self.writer.get(key) == self.rows.get(text)
            assert (version == ABSENT) == (text not in self.rows)
            if version != ABSENT:
                assert version >= self.versions.get(text, ABSENT)
                self.versions[text] = version

    def _compare_reader(self, reader: StateReader) -> None:
        found = {key: reader.get(key) for key in reader}
        assert {key: entry and entry.content for key, entry in found.items()} == self.rows
        assert len(reader) == len(self.rows)
        for number in IDS:
            key: Key = {"region": "eu", "id": number}
            entry = found.get(spelled(key))
            assert self.writer.version(key) == (ABSENT if entry is None else entry.version)


@pytest.mark.soak
@pytest.mark.timeout(times(600, soak=7200))
def test_a_state_topic_holds_what_a_dictionary_holds(kafka: Kafka) -> None:
    options = {"bootstrap.servers": kafka.bootstrap}
    run_machine(lambda: StateTopic(options), examples=times(6, soak=300), steps=times(25, soak=100))
