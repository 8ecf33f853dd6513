"""The one writer of a state topic: what it refuses, what it knows, and what becomes of a second one."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from cdc.base.errors import ConfigError, FencedError, TopicRefused, TopicUnavailable, ValueRefused, VersionConflict
from cdc.contract.partition import partition_of
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.application import ApplicationProducer
from cdc.kafka.replay.bounded import partitions_of, read_topic
from cdc.lab.stack import Kafka
from cdc.state import ABSENT, StateProducer, TopicsConfig
from tests.support.reading import fold_topic
from tests.support.soak import times
from tests.support.topic_settings import make_topic
from tests.support.topic_writer import TopicWriter


@pytest.fixture
def users(options: dict[str, Any], compacted: str) -> Iterator[StateProducer]:
    with StateProducer(options, compacted, key_columns=("region", "id")) as opened:
        yield opened


def user(number: int) -> dict[str, Any]:
    return {"id": number, "region": "eu"}


def key(number: int) -> bytes:
    return b'{"region":"eu","id":%d}' % number


def test_the_latest_value_is_the_state_and_only_a_real_null_deletes(
    options: dict[str, Any], compacted: str, users: StateProducer
) -> None:
    users.put(user(1), {"name": "Ann"})
    users.put(user(1), {"name": "Anna"})
    users.put(user(2), {"name": "Bob"})
    users.delete(user(2))
    users.delete(user(3))
    records = list(read_topic(BrokerAdmin(options), compacted))
    assert {each.key for each in records} == {key(1), key(2), key(3)}
    assert [each.value for each in records if each.key == key(2)] == [b'{"name":"Bob"}', None]
    assert {name: each.value for name, each in fold_topic(options, compacted).items()} == {key(1): b'{"name":"Anna"}'}
    assert (users.get(user(1)), users.get(user(2))) == ({"name": "Anna"}, None)


def test_keys_lie_where_the_bridge_and_java_clients_put_them(
    options: dict[str, Any], compacted: str, users: StateProducer
) -> None:
    with users.transaction():
        for number in range(30):
            users.put(user(number), {"n": number})
    records = list(read_topic(BrokerAdmin(options), compacted))
    assert {each.partition for each in records} == {0, 1}
    assert all(each.partition == partition_of(each.key or b"", 2) for each in records)


def test_a_version_that_is_not_expected_is_refused(users: StateProducer) -> None:
    users.put(user(1), {"v": 1}, expected=ABSENT)
    first = users.version(user(1))
    users.put(user(1), {"v": 2}, expected=first)
    with pytest.raises(VersionConflict, match=r'"id":1.*not has version') as caught:
        users.put(user(1), {"v": 3}, expected=first)
    assert "get the key again" in caught.value.remedy
    with pytest.raises(VersionConflict, match="not holds nothing"):
        users.delete(user(1), expected=ABSENT)
    assert users.get(user(1)) == {"v": 2}
    users.delete(user(1), expected=users.version(user(1)))
    assert users.version(user(1)) == ABSENT
    with pytest.raises(VersionConflict, match="holds nothing"):
        users.put(user(1), {"v": 4}, expected=first)


def test_versions_survive_a_restart_and_never_come_again(options: dict[str, Any], compacted: str) -> None:
    with StateProducer(options, compacted) as one:
        one.put("a", {"v": 1})
        one.put("b", {"v": 1})
        seen = {each: one.version(each) for each in ("a", "b")}
        one.delete("b")
    with StateProducer(options, compacted) as two:
        assert (two.version("a"), two.version("b")) == (seen["a"], ABSENT)
        assert two.get("a") == {"v": 1}
        two.put("b", {"v": 2})
        assert two.version("b") > seen["b"]


def test_all_of_a_transaction_or_nothing(options: dict[str, Any], compacted: str, users: StateProducer) -> None:
    users.put(user(1), {"v": 1})
    before = fold_topic(options, compacted)

    def fail() -> None:
        with users.transaction():
            users.put(user(1), {"v": 2})
            users.delete(user(1))
            users.put(user(2), {"v": 1})
            assert users.get(user(1)) is None, "a transaction sees what it wrote"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert users.get(user(1)) == {"v": 1}
    assert users.version(user(2)) == ABSENT
    with users.transaction():
        users.put(user(2), {"v": 2})
        with pytest.raises(VersionConflict, match="written in this transaction"):
            users.put(user(2), {"v": 3}, expected=ABSENT)
    after = fold_topic(options, compacted)
    assert after[key(1)] == before[key(1)]
    assert after[key(2)].value == b'{"v":2}'


def test_a_second_instance_fences_the_first_which_is_told(options: dict[str, Any], compacted: str) -> None:
    with StateProducer(options, compacted) as first:
        first.put("a", {"by": "first"})
        with StateProducer(options, compacted) as second:
            second.put("a", {"by": "second"}, expected=first.version("a"))
            for _ in range(2):
                with pytest.raises(FencedError, match=f"'cdc-state-{compacted}'") as caught:
                    first.put("a", {"by": "first again"}, expected=first.version("a"))
                assert "the one that started later is the only writer now" in caught.value.remedy
    assert fold_topic(options, compacted)[b"a"].value == b'{"by":"second"}'


def test_a_writer_that_was_killed_within_a_transaction_leaves_nothing(options: dict[str, Any], compacted: str) -> None:
    dead = Producer({**options, "partitioner": "murmur2_random", "transactional.id": f"cdc-state-{compacted}"})
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(compacted, key=b"a", value=b'{"v":"never"}')
    dead.flush()
    with StateProducer(options, compacted) as alive:
        assert alive.get("a") is None
        alive.put("a", {"v": 1}, expected=ABSENT)
    assert fold_topic(options, compacted)[b"a"].value == b'{"v":1}'


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_loses_state_is_refused_with_the_command(options: dict[str, Any], name: str, policy: str) -> None:
    make_topic(options, name, 1, policy)
    with pytest.raises(TopicRefused, match=f"'{name}' has cleanup.policy={policy}") as caught:
        StateProducer(options, name)
    assert "--add-config cleanup.policy=compact" in caught.value.remedy


def test_a_missing_topic_is_made_only_when_asked(options: dict[str, Any], name: str) -> None:
    with pytest.raises(TopicRefused, match="does not exist"):
        StateProducer(options, name)
    with StateProducer(options, name, create=TopicsConfig(partitions=3)) as made:
        made.put("a", {"v": 1})
    assert len(partitions_of(BrokerAdmin(options), name)) == 3
    StateProducer(options, name, create=TopicsConfig(partitions=5)).close()
    assert len(partitions_of(BrokerAdmin(options), name)) == 3, "the partitions of a topic never change"


def test_deltas_are_refused_unless_the_field_is_declared(options: dict[str, Any], compacted: str) -> None:
    with StateProducer(options, compacted, absolute_fields=("sortedBy",)) as one:
        one.put("a", {"sortedBy": 3, "balance": 110})
        with pytest.raises(ValueRefused, match="balanceDelta"):
            one.put("a", {"balanceDelta": 10})
        assert one.get("a") == {"sortedBy": 3, "balance": 110}


def test_a_value_of_somebody_else_is_named(options: dict[str, Any], compacted: str) -> None:
    other = Producer({**options, "partitioner": "murmur2_random"})
    other.produce(compacted, key=b"a", value=b"null")
    other.flush()
    with StateProducer(options, compacted) as one:
        with pytest.raises(ValueRefused, match="not a JSON object"):
            one.get("a")
        one.put("a", {"v": 1})
        assert one.get("a") == {"v": 1}


def test_a_key_in_another_spelling_is_refused_and_can_be_moved(options: dict[str, Any], compacted: str) -> None:
    other = Producer({**options, "partitioner": "murmur2_random"})
    for key in (b'{"id": 7}', b'{"id":8}', b"plain", b"[1]", b"\xff"):
        other.produce(compacted, key=key, value=b'{"v":1}')
    other.flush()
    with pytest.raises(TopicRefused, match=r'holds the key \{"id": 7\}, which is written \{"id":7\} here') as caught:
        StateProducer(options, compacted, key_columns=("id",))
    assert "delete('{\"id\": 7}')" in caught.value.remedy
    with StateProducer(options, compacted) as plain:
        value = plain.get('{"id": 7}')
        plain.delete('{"id": 7}')
    with StateProducer(options, compacted, key_columns=("id",)) as one:
        one.put({"id": 7}, value or {})
        assert (one.get({"id": 7}), one.get({"id": 8})) == ({"v": 1}, {"v": 1})


def test_keys_that_lie_elsewhere_are_refused(options: dict[str, Any], compacted: str) -> None:
    """librdkafka's own partitioner is another than that of Java clients."""
    other = Producer(options)
    for number in range(20):
        other.produce(compacted, key=b"k%d" % number, value=b"{}")
    other.flush()
    with pytest.raises(
        TopicRefused, match=r"key k\d+ of topic .* lies in partition \d, and belongs in \d of 2"
    ) as caught:
        StateProducer(options, compacted)
    assert "murmur2_random" in caught.value.remedy


def test_too_large_a_value_is_refused_and_the_producer_goes_on(options: dict[str, Any], compacted: str) -> None:
    with StateProducer(options, compacted) as one:
        with pytest.raises(TopicRefused, match="too large"):
            one.put("a", {"v": "x" * 20_000_000})
        one.put("a", {"v": "small"})
        assert one.get("a") == {"v": "small"}


def test_an_interrupt_behind_a_commit_leaves_no_writer_that_believes_the_former_value(
    options: dict[str, Any], compacted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StateProducer(options, compacted) as users:
        users.put("a", {"n": 1})
        commit = ApplicationProducer.commit

        def interrupted(producer: ApplicationProducer) -> None:
            commit(producer)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ApplicationProducer, "commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                users.put("a", {"n": 2})
        with pytest.raises(TopicUnavailable, match="interrupted"):
            users.put("a", {"n": 2}, expected=users.version("a"))
    with StateProducer(options, compacted) as users:
        assert users.get("a") == {"n": 2}


def test_an_outcome_that_is_unknown_is_read_back(
    options: dict[str, Any], compacted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit happened, and its answer was lost."""
    one = StateProducer(options, compacted)
    one.put("a", {"v": 1})
    commit = ApplicationProducer.commit

    def lose_answer(producer: ApplicationProducer) -> None:
        commit(producer)
        raise TopicUnavailable("the answer was lost", remedy="try again")

    monkeypatch.setattr(ApplicationProducer, "commit", lose_answer)
    with pytest.raises(TopicUnavailable, match="lost"):
        one.put("a", {"v": 2})
    monkeypatch.undo()
    with pytest.raises(TopicUnavailable, match="lost"):
        one.put("a", {"v": 3}, expected=one.version("a"))
    one.close()
    with StateProducer(options, compacted) as again:
        assert again.get("a") == {"v": 2}


@pytest.mark.soak
def test_at_random_it_knows_what_readers_see(options: dict[str, Any], compacted: str) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"SEED={seed}\n")
    rng = random.Random(seed)
    expected: dict[str, dict[str, Any]] = {}
    one = StateProducer(options, compacted)

    def change(state: dict[str, dict[str, Any]]) -> None:
        key = f"k{rng.randrange(8)}"
        if rng.random() < 0.3:
            one.delete(key)
            state.pop(key, None)
        else:
            state[key] = {"n": rng.random()}
            one.put(key, state[key])

    for _ in range(times(30, soak=600)):
        what = rng.random()
        inside = dict(expected)
        with suppress(ZeroDivisionError), one.transaction():
            for _ in range(rng.randrange(1, 5)):
                change(inside)
            if what < 0.2:
                raise ZeroDivisionError
            expected = inside
        if what > 0.9:
            one.close()
            one = StateProducer(options, compacted)
        assert all(one.get(f"k{number}") == expected.get(f"k{number}") for number in range(8))
    records = list(read_topic(BrokerAdmin(options), compacted))
    newest = {each.key: each.offset for each in records}
    assert {name.encode(): one.version(name) for name in expected} == {
        name.encode(): newest[name.encode()] for name in expected
    }
    one.close()
    folded = fold_topic(options, compacted)
    assert {key.decode(): orjson.loads(each.value) for key, each in folded.items()} == expected


def test_a_topic_of_a_bridge_is_left_to_it(options: dict[str, Any], kafka: Kafka) -> None:
    topics = TopicWriter(kafka.bootstrap)
    table = topics.table("t", id="int4")
    topics.transaction(10, (table, {"id": 1}))
    with pytest.raises(TopicRefused, match="written by a bridge"):
        StateProducer(options, table.topic, key_columns=("id",))


@pytest.mark.parametrize("option", ["partitioner", "acks", "enable.idempotence", "transactional.id", "isolation.level"])
def test_an_option_that_breaks_a_promise_is_refused(options: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError, match=f"'{option}' cannot be set here"):
        StateProducer({**options, option: "x"}, "t")


def test_a_closed_producer_says_so(options: dict[str, Any], compacted: str) -> None:
    one = StateProducer(options, compacted)
    one.close()
    one.close()
    with pytest.raises(TopicUnavailable, match="closed"):
        one.put("a", {"v": 1})
