"""Events and states under random steps: each state is what its events come to, whoever appended them.

Two topics of the broker that the tests share. ``SEED=42`` replays a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import orjson
import pytest
from confluent_kafka import Producer
from hypothesis import strategies
from hypothesis.stateful import precondition, rule

from cdc.base.errors import FencedError, ValueRefused, VersionConflict
from cdc.lab.stack import Kafka
from cdc.state import ABSENT, EventSourced, TopicsConfig
from tests.support.names import unique
from tests.support.reading import fold_topic
from tests.support.soak import times
from tests.support.stateful import Machine, run_machine

State = dict[str, Any]
Event = dict[str, Any]

KEYS: Final = ("ann", "bob", "é")
CLOSED: Final[Event] = {"type": "closed"}
BROKEN: Final[Event] = {"type": "broken"}
EVENTS: Final[tuple[Event, ...]] = (CLOSED, {"type": "moved", "amount": 1}, {"type": "moved", "amount": -7})

keys = strategies.sampled_from(KEYS)
events = strategies.lists(strategies.sampled_from(EVENTS), min_size=1, max_size=3)
expectations = strategies.sampled_from(["any", "right", "old", "absent"])


def account(state: State | None, event: Event) -> Any:
    """Order counts: the last two moves are in the state."""
    if event == CLOSED:
        return None
    if event == BROKEN:
        return ["no object"]
    now = state or {"balance": 0, "moves": []}
    return {"balance": now["balance"] + event["amount"], "moves": [*now["moves"][-1:], event["amount"]]}


class Accounts(Machine):
    """The topics, their writer, and all events in lists."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.options, self.events, self.state = options, unique("state-"), unique("state-")
        self.told: dict[str, list[Event]] = {}
        self.others = Producer({**options, "partitioner": "murmur2_random"})
        self.deaths = self.states = 0
        self.writer = self.opened()

    def opened(self) -> EventSourced:
        return EventSourced(
            self.options, events=self.events, state=self.state, apply=account, create=TopicsConfig(partitions=2)
        )

    def expected(self, key: str) -> State | None:
        state = None
        for event in self.told.get(key, ()):
            state = account(state, event)
        return state

    def live(self) -> dict[bytes, State]:
        return {key.encode(): state for key in KEYS if (state := self.expected(key)) is not None}

    @rule(key=keys, some=events, expectation=expectations)
    def append(self, key: str, some: Sequence[Event], expectation: str) -> None:
        now = self.writer.version(key)
        expected = {"any": None, "right": now, "old": now - 1 if now > 0 else 10**9, "absent": ABSENT}[expectation]
        if expected not in (None, now):
            with pytest.raises(VersionConflict):
                self.writer.append(key, *some, expected=expected)
        else:
            self.told.setdefault(key, []).extend(some)
            assert self.writer.append(key, *some, expected=expected) == self.expected(key)
            assert self.writer.version(key) > now or self.expected(key) is None
        self._compare()

    @rule(key=keys, some=events)
    def refused(self, key: str, some: Sequence[Event]) -> None:
        """Nothing of it is written, neither the good events nor their state."""
        with pytest.raises(ValueRefused):
            self.writer.append(key, *some, BROKEN)
        self._compare()

    @rule()
    def reopen(self) -> None:
        self._reopen(caught_up=0)

    @rule(appended=strategies.lists(strategies.tuples(keys, events), min_size=1, max_size=4))
    def others_append(self, appended: Sequence[tuple[str, Sequence[Event]]]) -> None:
        """Another program appends while no writer is open: the next one says how many states have changed."""
        self.writer.close()
        before = self.live()
        for key, some in appended:
            self.told.setdefault(key, []).extend(some)
            for event in some:
                self.others.produce(self.events, key=key.encode(), value=orjson.dumps(event))
        self.others.flush()
        self._reopen(caught_up=len({key.encode() for key, _ in appended} & (before.keys() | self.live().keys())))

    @precondition(lambda self: self.states < 3)
    @rule()
    def begin_another_state_topic(self) -> None:
        """It is filled from the events."""
        self.states += 1
        self.state = unique("state-")
        self._reopen(caught_up=len(self.live()))

    @rule(key=keys)
    def take_over(self, key: str) -> None:
        """A second writer, whom the first one does not disturb."""
        first, self.writer = self.writer, self.opened()
        assert self.writer.caught_up == 0
        with closing(first), pytest.raises(FencedError):
            first.append(key, EVENTS[1])
        self._compare()

    @precondition(lambda self: self.deaths < times(1, soak=10))
    @rule(key=keys)
    def die_within_a_transaction(self, key: str) -> None:
        """A writer that nobody closes, with an event that nobody commits. Kafka takes a second to abort it."""
        self.deaths += 1
        dead = Producer(
            {**self.options, "partitioner": "murmur2_random", "transactional.id": f"cdc-state-{self.state}"}
        )
        dead.init_transactions(30)
        dead.begin_transaction()
        dead.produce(self.events, key=key.encode(), value=orjson.dumps(EVENTS[1]))
        dead.flush()
        self._reopen(caught_up=0)

    @rule()
    def prove(self) -> None:
        assert self.writer.verify() == []
        assert self.writer.rebuild() == self.live()
        stored = {key: orjson.loads(each.value) for key, each in fold_topic(self.options, self.state).items()}
        assert stored == self.live()

    def finish(self) -> None:
        self.prove()

    def close(self) -> None:
        self.writer.close()
        del self.others  # it would ask for its brokers for as long as the failing machine is remembered

    def _reopen(self, caught_up: int) -> None:
        self.writer.close()
        self.writer = self.opened()
        assert self.writer.caught_up == caught_up
        self._compare()

    def _compare(self) -> None:
        for key in KEYS:
            assert self.writer.get(key) == self.expected(key)
            assert (self.writer.version(key) == ABSENT) == (self.expected(key) is None)


@pytest.mark.soak
@pytest.mark.timeout(times(600, soak=7200))
def test_each_state_is_what_its_events_come_to(kafka: Kafka) -> None:
    options = {"bootstrap.servers": kafka.bootstrap}
    run_machine(lambda: Accounts(options), examples=times(6, soak=300), steps=times(20, soak=100))
