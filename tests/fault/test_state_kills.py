"""Services killed at random between their steps: what they counted is exact, and events agree with their state.

``SEED=n make test-fault`` replays where each life ends; how that meets the brokers is up to the machine.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from confluent_kafka import Producer

from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.application import ApplicationProducer
from cdc.kafka.replay.bounded import read_topic
from cdc.kafka.replay.group import GroupReader
from cdc.lab.stack import Kafka
from cdc.state import ChangelogStore, EventSourced, PartitionState, StoredRecord, TopicsConfig, TopicUnavailable
from tests.support.names import unique
from tests.support.soak import times
from tests.support.topic_settings import make_topic
from tests.support.waiting import eventually

_LIVES = times(9, soak=180)
_LIVES_OF_A_WRITER = times(6, soak=80)
_EVENTS_EACH_LIFE = 400
_USERS = (b"alice", b"bob", b"carol", b"dave", b"eve")
_KINDS = ("login_count", "purchases")
_PARTITIONS = 3
_GAVE_UP = 17
_TAKEOVER_S = 30.0
"""As docs/state.md has it: a step's transaction runs out after 20 s, and the brokers look every ten seconds."""
_BUSY_S = 20.0
"""What a busy machine adds: reading the state back, and a broker that looks late."""
_STEP_RECORDS = 60
_CONTEXT = multiprocessing.get_context("forkserver")

# Where a life may end: before and after each thing that a step does to Kafka, in the handler, and on the way to it.
_PLACES = (
    "handle",
    *(f"{when} {call}" for call in ("on_assigned", "produce", "add_offsets", "commit") for when in ("before", "after")),
)


def count(event: StoredRecord, state: PartitionState) -> None:
    """Counts what a user does, and forgets users who leave."""
    assert event.key is not None
    assert event.value is not None
    kind = orjson.loads(event.value)["kind"]
    if kind == "leave":
        state.delete(event.key)
        return
    user = state.get(event.key) or dict.fromkeys(_KINDS, 0)
    state.put(event.key, {**user, kind: user[kind] + 1})


def step_until(store: ChangelogStore, condition: Callable[[], bool]) -> None:
    """Count on, step by step, until it is true."""

    def holds() -> bool:
        store.step(count, timeout_s=0.1)
        return condition()

    eventually(holds)


class Events:
    """Writes events, and knows what they come to."""

    def __init__(self, options: dict[str, Any], topic: str, rng: random.Random) -> None:
        self._producer = Producer({**options, "partitioner": "murmur2_random", "linger.ms": 0})
        self._topic, self._rng = topic, rng
        self.expected: dict[bytes, Counter[str]] = {}
        self.count = 0

    def send(self, number: int) -> None:
        for _ in range(number):
            user = self._rng.choice(_USERS)
            # Of the others every event counts to the end: nothing wipes out a mistake.
            kind = "leave" if user == b"eve" and self._rng.random() < 0.05 else self._rng.choice(_KINDS)
            self._producer.produce(self._topic, key=user, value=orjson.dumps({"kind": kind}))
            if kind == "leave":
                self.expected.pop(user, None)
            else:
                self.expected.setdefault(user, Counter(dict.fromkeys(_KINDS, 0)))[kind] += 1
        self._producer.flush()
        self.count += number

    def close(self) -> None:
        del self._producer


@pytest.mark.soak
def test_killed_between_any_two_steps_counts_are_exact(kafka: Kafka) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: make test-fault SEED={seed}\n")
    rng = random.Random(seed)
    options, name = {"bootstrap.servers": kafka.bootstrap}, unique("kills-")
    source, changelog = f"{name}-events", f"{name}-activity-changelog"
    make_topic(options, source, _PARTITIONS, "delete")
    events = Events(options, source, rng)
    deaths = [_PLACES[number % len(_PLACES)] for number in range(_LIVES)]
    rng.shuffle(deaths)
    killed = 0
    for place in deaths:
        events.send(_EVENTS_EACH_LIFE)
        visits = 1 if "assigned" in place else rng.randrange(1, 5)
        killed += _live(options, name, source, place, visits) == -signal.SIGKILL
    events.close()
    assert killed == _LIVES, "each life ends where it was told to"
    with ChangelogStore(options, app=name, store="activity", source=source) as store:
        step_until(store, lambda: held_by(store) == events.expected)
    check_changelog(options, changelog, events.expected)
    assert sum(events.expected[b"alice"].values()) > _LIVES * _EVENTS_EACH_LIFE / len(_USERS) / 2
    sys.stdout.write(f"{killed} kills at {Counter(deaths)}, {events.count} events, {events.expected}\n")


def held_by(store: ChangelogStore) -> dict[bytes, Any]:
    return dict(each for part in store.parts.values() for each in part.items())


def check_changelog(options: dict[str, Any], changelog: str, expected: Mapping[bytes, Any]) -> None:
    """It holds what was counted, and no event changed a user's state twice on the way."""
    state: dict[bytes | None, bytes | None] = {}
    made_by: dict[bytes | None, int] = {}
    for record in read_topic(BrokerAdmin(options), changelog):
        offset = orjson.loads(record.header)["source"]
        assert offset > made_by.get(record.key, -1), "no event changed a user's state twice"
        made_by[record.key], state[record.key] = offset, record.value
    counted = {key: orjson.loads(value) for key, value in state.items() if value is not None}
    assert counted == expected


@pytest.mark.parametrize(
    "place",
    [
        "before add_offsets",
        pytest.param("after flush", marks=pytest.mark.long),
        pytest.param("after add_offsets", marks=pytest.mark.long),
    ],
)
def test_an_instance_that_wakes_up_too_late_has_no_say(kafka: Kafka, place: str) -> None:
    """It stands still before it commits, for so long that another one gets its partitions.

    What the brokers have of the commit by then is what the heir has to wait for: nothing, unless the client's own
    thread was fast; the records; or records and offsets.
    """
    rng, name = random.Random(7), unique("sleeper-")
    options, source = {"bootstrap.servers": kafka.bootstrap}, f"{name}-events"
    make_topic(options, source, _PARTITIONS, "delete")
    events = Events(options, source, rng)
    events.send(_EVENTS_EACH_LIFE)
    sleeper = _CONTEXT.Process(target=_serve, args=(options, name, source, place, 2, signal.SIGSTOP))
    sleeper.start()
    assert sleeper.pid is not None
    process = psutil.Process(sleeper.pid)
    try:
        eventually(lambda: process.status() == psutil.STATUS_STOPPED)
        began = time.monotonic()
        with ChangelogStore(options, app=name, store="activity", source=source, instance="heir") as heir:
            step_until(heir, lambda: held_by(heir) == events.expected)
            took_s = time.monotonic() - began
            sys.stdout.write(f"stopped {place}: its heir had all of it after {took_s:.1f} s\n")
            assert took_s < _TAKEOVER_S + _BUSY_S
            process.send_signal(signal.SIGCONT)
            events.send(_EVENTS_EACH_LIFE)
            step_until(heir, lambda: not sleeper.is_alive())
            assert sleeper.exitcode == _GAVE_UP
            step_until(heir, lambda: held_by(heir) == events.expected)
    finally:
        sleeper.kill()
        sleeper.join(10)
        events.close()
    check_changelog(options, f"{name}-activity-changelog", events.expected)


@pytest.mark.soak
def test_a_writer_of_events_killed_anywhere_leaves_events_and_state_that_agree(kafka: Kafka, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: make test-fault SEED={seed}\n")
    rng, acknowledged = random.Random(seed), tmp_path / "acknowledged"
    options, name = {"bootstrap.servers": kafka.bootstrap}, unique("kills-")
    places = [f"{when} {call}" for call in ("produce", "flush", "commit") for when in ("before", "after")]
    for life in range(_LIVES_OF_A_WRITER):
        place, visits = places[life % len(places)], rng.randrange(5, 25)
        assert _run(_append, options, name, str(acknowledged), place, visits) == -signal.SIGKILL
    with _open_counters(options, name) as counters:
        assert counters.caught_up == 0
        assert counters.verify() == []
        written = sum(state["count"] for state in counters.rebuild().values())
    told = acknowledged.stat().st_size
    assert told <= written <= told + _LIVES_OF_A_WRITER, "an append that was acknowledged is there; others may be"
    assert told > _LIVES_OF_A_WRITER


def _open_counters(options: dict[str, Any], name: str) -> EventSourced:
    return EventSourced(
        options,
        events=f"{name}-events",
        state=f"{name}-state",
        apply=lambda state, _event: {"count": (state or {"count": 0})["count"] + 1},
        create=TopicsConfig(partitions=2),
    )


def _append(options: dict[str, Any], name: str, acknowledged: str, place: str, visits: int) -> None:
    """Appends events, and a byte to a file for each one that is acknowledged, until it dies."""
    death, file = _Death(place, visits), os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    counters = _open_counters(options, name)
    for call in ("produce", "flush", "commit"):
        death.wait_at(ApplicationProducer, call)
    for number in itertools.count():
        counters.append(f"k{number % 5}", {"number": number})
        os.write(file, b".")


def _live(options: dict[str, Any], app: str, source: str, place: str, visits: int) -> int | None:
    """One process that counts; how it ended."""
    return _run(_serve, options, app, source, place, visits)


def _run(target: Callable[..., None], *args: Any) -> int | None:
    process = _CONTEXT.Process(target=target, args=args)
    process.start()
    process.join(60)
    if process.exitcode is None:
        process.kill()
    return process.exitcode


def _serve(
    options: dict[str, Any], app: str, source: str, place: str, visits: int, number: signal.Signals = signal.SIGKILL
) -> None:
    """The service: one step after the other, until it dies at the n-th visit of a place."""
    death = _Death(place, visits, number)
    death.wait_at(ApplicationProducer, "produce")
    death.wait_at(ApplicationProducer, "add_offsets")
    if place == "after flush":
        _flush_before_offsets(death)
    death.wait_at(ApplicationProducer, "commit")
    _wait_at_assignments(death)
    _take_small_steps()
    with ChangelogStore(options, app=app, store="activity", source=source) as store:

        def handle(event: StoredRecord, state: PartitionState) -> None:
            death.reach("handle")
            count(event, state)

        try:
            while True:
                store.step(handle)
        except TopicUnavailable as error:
            # Or the brokers, which had a part of its transaction, ended that meanwhile; or it stood still for so long
            # that its own client gave up its records
            known = ("to another instance", "Kafka aborted our transaction", "message(s) timed out")
            sys.exit(_GAVE_UP if any(each in error.message for each in known) else 1)


# What follows changes classes, for the rest of a process that is made to die.


def _flush_before_offsets(death: _Death) -> None:
    """Let the brokers have the records of a step before its offsets are added."""
    add_offsets = ApplicationProducer.add_offsets

    def add(producer: ApplicationProducer, offsets: Mapping[tuple[str, int], int], group: Any, note: str = "") -> None:
        producer.flush()
        death.reach("after flush")
        add_offsets(producer, offsets, group, note)

    ApplicationProducer.add_offsets = add  # type: ignore[method-assign, assignment]


def _wait_at_assignments(death: _Death) -> None:
    """Before and after the state of partitions is read back."""
    init = GroupReader.__init__

    def opened(reader: GroupReader, *args: Any, on_assigned: Callable[..., Any], **more: Any) -> None:
        init(reader, *args, on_assigned=death.around("on_assigned", on_assigned), **more)

    GroupReader.__init__ = opened  # type: ignore[method-assign, assignment]


def _take_small_steps() -> None:
    """Many steps a life, whatever the brokers have ready."""
    poll = GroupReader.poll

    def poll_few(reader: GroupReader, max_records: int, timeout_s: float) -> list[StoredRecord]:
        return poll(reader, _STEP_RECORDS, timeout_s)

    GroupReader.poll = poll_few  # type: ignore[method-assign, assignment]


class _Death:
    """A signal to itself at the n-th visit of a place."""

    def __init__(self, place: str, visits: int, number: signal.Signals = signal.SIGKILL) -> None:
        self._place, self._left, self._signal = place, visits, number

    def reach(self, place: str) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._signal)

    def wait_at(self, owner: type, method: str) -> None:
        """Before and after each call of a method."""
        setattr(owner, method, self.around(method, getattr(owner, method)))

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def between(*args: Any, **more: Any) -> Any:
            self.reach(f"before {name}")
            result = call(*args, **more)
            self.reach(f"after {name}")
            return result

        return between


@pytest.fixture(autouse=True)
def preloaded() -> None:
    """Lives start in milliseconds: they are forked from a process that has imported everything."""
    _CONTEXT.set_forkserver_preload(["cdc.state", "tests.fault.test_state_kills"])
