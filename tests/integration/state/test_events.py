"""Events and their state in one Kafka transaction: they cannot disagree, and it can be proven that they do not."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cdc.base.errors import FencedError, TopicRefused, ValueRefused, VersionConflict
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.kafka.replay.bounded import read_topic
from cdc.state import ABSENT, Difference, EventSourced, TopicsConfig
from tests.support.reading import fold_topic
from tests.support.soak import times
from tests.support.topic_settings import delete_records, make_topic
from tests.support.waiting import eventually

Open = Callable[..., EventSourced]


def account(state: dict[str, Any] | None, event: dict[str, Any]) -> dict[str, Any] | None:
    if event["type"] == "closed":
        return None
    now = state or {"balance": 0, "moves": []}
    return {"balance": now["balance"] + event["amount"], "moves": (*now["moves"][-2:], event["amount"])}


@pytest.fixture
def open_accounts(options: dict[str, Any], name: str) -> Iterator[Open]:
    opened: list[EventSourced] = []

    def make(**more: Any) -> EventSourced:
        arguments = {"events": f"{name}-events", "state": f"{name}-state", "apply": account, **more}
        opened.append(EventSourced(options, create=TopicsConfig(partitions=2), **arguments))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def moved(amount: int) -> dict[str, Any]:
    return {"type": "moved", "amount": amount}


CLOSED = {"type": "closed"}


def test_events_and_their_state_are_readable_together(options: dict[str, Any], name: str, open_accounts: Open) -> None:
    accounts = open_accounts()
    assert accounts.append("ann", moved(100), moved(-30)) == {"balance": 70, "moves": [100, -30]}
    accounts.append("bob", moved(5))
    assert accounts.append("bob", CLOSED) is None
    events = list(read_topic(BrokerAdmin(options), f"{name}-events"))
    assert [orjson.loads(each.value or b"") for each in events if each.key == b"ann"] == [moved(100), moved(-30)]
    state = fold_topic(options, f"{name}-state")
    assert orjson.loads(state[b"ann"].value) == accounts.get("ann") == {"balance": 70, "moves": [100, -30]}
    assert (
        orjson.loads(state[b"ann"].header)["event"]
        == accounts.version("ann")
        == max(each.offset for each in events if each.key == b"ann")
    )
    assert (b"bob" in state, accounts.get("bob"), accounts.version("bob")) == (False, None, ABSENT)
    kept = {"cleanup.policy": "delete", "retention.ms": "-1"}
    assert TopicAdmin(BrokerAdmin(options)).drift([TopicSpecification(f"{name}-events", 2, 1, kept)]) == []


@pytest.mark.soak
def test_at_random_the_rebuilt_state_is_the_state_topic_after_any_restart(
    options: dict[str, Any], name: str, open_accounts: Open
) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"SEED={seed}\n")
    rng = random.Random(seed)
    expected: dict[str, dict[str, Any] | None] = {}
    accounts = open_accounts()
    for _ in range(times(30, soak=600)):
        key = f"k{rng.randrange(12)}"
        events = [CLOSED if rng.random() < 0.2 else moved(rng.randrange(-50, 50)) for _ in range(rng.randrange(1, 4))]
        state = expected.get(key)
        for event in events:
            state = account(state, event)
        expected[key] = orjson.loads(orjson.dumps(state))
        assert accounts.append(key, *events) == expected[key]
        if rng.random() < 0.1:
            accounts.close()
            accounts = open_accounts()
            assert accounts.caught_up == 0
    live = {key.encode(): state for key, state in expected.items() if state is not None}
    assert accounts.rebuild() == live
    assert {key: orjson.loads(each.value) for key, each in fold_topic(options, f"{name}-state").items()} == live
    assert accounts.verify() == []


def test_a_state_that_is_not_what_its_events_come_to_is_named(
    options: dict[str, Any], name: str, open_accounts: Open
) -> None:
    accounts = open_accounts()
    for key in ("ann", "bob", "cleo"):
        accounts.append(key, moved(10))
    at = accounts.version("ann"), accounts.version("bob")
    vandal = Producer({**options, "partitioner": "murmur2_random"})
    header: list[tuple[str, str | bytes | None]] = [("cdc", b'{"event":%d}' % at[0])]
    vandal.produce(f"{name}-state", key=b"ann", value=b'{"balance":11,"moves":[10]}', headers=header)
    vandal.produce(f"{name}-state", key=b"bob", value=None)
    vandal.produce(f"{name}-state", key=b"eve", value=b'{"balance":1000}')
    vandal.flush()
    right = {"balance": 10, "moves": [10]}
    assert accounts.verify() == [
        Difference(b"ann", at[0], {"balance": 11, "moves": [10]}, right),
        Difference(b"bob", at[1], None, right),
        Difference(b"eve", ABSENT, {"balance": 1000}, None),
    ]


def test_verify_proves_it_beside_a_writer_that_goes_on(open_accounts: Open) -> None:
    accounts = open_accounts()
    stop = threading.Event()

    def write() -> None:
        rng = random.Random(1)
        while not stop.is_set():
            accounts.append(f"k{rng.randrange(3)}", CLOSED if rng.random() < 0.5 else moved(1))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [accounts.verify() for _ in range(4)]
    finally:
        stop.set()
        writer.join(30)
    assert found == [[]] * 4
    assert accounts.verify() == []


def test_a_new_state_topic_is_made_from_the_events(name: str, open_accounts: Open) -> None:
    """The rule has changed: the same events come to another state."""
    accounts = open_accounts()
    accounts.append("ann", moved(1), moved(2))
    accounts.append("bob", moved(3))
    accounts.append("bob", CLOSED)

    def count(state: dict[str, Any] | None, event: dict[str, Any]) -> dict[str, Any]:
        return {"events": (state or {"events": 0})["events"] + 1}

    counts = open_accounts(state=f"{name}-counts", apply=count)
    assert counts.caught_up == 2
    assert (counts.get("ann"), counts.get("bob")) == ({"events": 2}, {"events": 2})
    assert counts.verify() == []


def test_events_of_another_program_get_their_state_at_the_next_start(
    options: dict[str, Any], name: str, open_accounts: Open
) -> None:
    accounts = open_accounts()
    accounts.append("ann", moved(1))
    accounts.append("bob", moved(5))
    accounts.append("bob", CLOSED)
    accounts.close()
    importer = Producer({**options, "partitioner": "murmur2_random"})
    for key, event in ((b"ann", moved(2)), (b"bob", moved(7)), (b"cleo", moved(3)), (b"ann", moved(4))):
        importer.produce(f"{name}-events", key=key, value=orjson.dumps(event))
    importer.produce(f"{name}-events", key=b"ann", value=None)
    importer.flush()
    accounts = open_accounts()
    assert accounts.caught_up == 3
    assert [accounts.get(key) and accounts.get(key)["balance"] for key in ("ann", "bob", "cleo")] == [7, 7, 3]  # type: ignore[index]  # None would fail the test
    assert accounts.verify() == []


def test_a_version_that_is_not_expected_is_refused(open_accounts: Open) -> None:
    accounts = open_accounts()
    accounts.append("ann", moved(1), expected=ABSENT)
    first = accounts.version("ann")
    accounts.append("ann", moved(1), expected=first)
    with pytest.raises(VersionConflict, match=f"not {first}"):
        accounts.append("ann", moved(1), expected=first)
    with pytest.raises(VersionConflict):
        accounts.append("ann", moved(1), expected=ABSENT)
    assert accounts.get("ann") == {"balance": 2, "moves": [1, 1]}


def test_what_a_rule_refuses_is_not_written(options: dict[str, Any], name: str, open_accounts: Open) -> None:
    accounts = open_accounts()
    with pytest.raises(KeyError):
        accounts.append("ann", {"unknown": 1})
    with pytest.raises(ValueRefused):
        accounts.append("ann", None)  # type: ignore[arg-type]  # a value that is refused
    assert accounts.append("ann") is None
    assert list(read_topic(BrokerAdmin(options), f"{name}-events")) == []


def test_a_second_instance_fences_the_first(open_accounts: Open) -> None:
    first = open_accounts()
    first.append("ann", moved(1))
    second = open_accounts()
    second.append("ann", moved(1))
    with pytest.raises(FencedError):
        first.append("ann", moved(100))
    assert second.verify() == []
    assert second.rebuild() == {b"ann": {"balance": 2, "moves": [1, 1]}}


def test_without_the_first_events_nothing_is_proven(options: dict[str, Any], name: str, open_accounts: Open) -> None:
    accounts = open_accounts()
    accounts.append("ann", moved(1))
    delete_events(options, f"{name}-events")
    with pytest.raises(TopicRefused, match=r"events 0 to \d+ of partition \d .* are gone"):
        accounts.verify()
    assert accounts.append("ann", moved(1)) == {"balance": 2, "moves": [1, 1]}, "the state goes on"


def test_events_that_were_made_anew_do_not_pass_for_those_that_states_have_in_them(
    options: dict[str, Any], name: str, open_accounts: Open
) -> None:
    """What another program appends there would never come to its state."""
    accounts = open_accounts()
    for _ in range(3):
        accounts.append("ann", moved(1))
    accounts.close()
    admin = AdminClient(options)
    admin.delete_topics([f"{name}-events"])[f"{name}-events"].result(30)
    eventually(lambda: f"{name}-events" not in TopicAdmin(BrokerAdmin(options)).partitions())
    with pytest.raises(TopicRefused, match=r"ends at 0, but states include event \d: the topic was recreated or trunc"):
        open_accounts()
    anew = open_accounts(state=f"{name}-state-of-new-events")
    assert anew.append("ann", moved(7)) == {"balance": 7, "moves": [7]}


def delete_events(options: dict[str, Any], topic: str) -> None:
    before = len(list(read_topic(BrokerAdmin(options), topic)))
    delete_records(options["bootstrap.servers"], topic)
    eventually(lambda: len(list(read_topic(BrokerAdmin(options), topic))) < before)


def test_topics_with_different_partitions_are_refused(options: dict[str, Any], name: str, open_accounts: Open) -> None:
    make_topic(options, f"{name}-state", 3, "compact")
    with pytest.raises(TopicRefused, match=r"has 2 partitions, and topic .* has 3"):
        open_accounts()
