"""All of a topic in memory: the end is known, whatever lies there."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer

from cdc.base.errors import TopicRefused, ValueRefused
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import partitions_of
from cdc.kafka.replay.reader import TopicReader
from cdc.state import StateProducer, StateReader
from tests.support.waiting import eventually


def test_instances_without_a_group_each_hold_everything_and_follow(options: dict[str, Any], compacted: str) -> None:
    with StateProducer(options, compacted) as writer:
        for number in range(20):
            writer.put(f"user-{number}", {"n": number})
        with StateReader(options, compacted) as one, StateReader(options, compacted) as two:
            for reader in (one, two):
                assert len(reader.load()) == 20
                assert {each.decode() for each in reader} == {f"user-{number}" for number in range(20)}
            writer.delete("user-3")
            writer.put("user-4", {"n": 44})
            changes: list[Any] = []

            def both() -> bool:
                changes.extend(one.poll(0.1))
                return len(changes) == 2

            eventually(both)
            assert [(each.old.content, each.new and each.new.content) for each in changes] == [
                ({"n": 3}, None),
                ({"n": 4}, {"n": 44}),
            ]
            assert two.get(b"user-4").content == {"n": 4}  # type: ignore[union-attr]  # None would fail the test
            two.load()
            assert (len(two), two.get(b"user-3")) == (19, None)


def test_what_is_written_while_it_loads_is_not_lost(
    options: dict[str, Any], compacted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StateProducer(options, compacted) as writer:
        writer.put("user", {"n": 1})
    with closing(TopicReader(options)) as reader:
        before = reader.high_watermarks(partitions_of(BrokerAdmin(options), compacted))
    with StateProducer(options, compacted) as writer:
        writer.put("user", {"n": 2})
    with StateReader(options, compacted) as reader_of_all:
        with monkeypatch.context() as patched:
            patched.setattr(TopicReader, "high_watermarks", lambda *_: before)
            reader_of_all.load()
        reader_of_all.load()
        assert reader_of_all.get(b"user").content == {"n": 2}  # type: ignore[union-attr]  # None would fail the test


def test_load_ends_at_markers_aborted_records_and_empty_partitions(options: dict[str, Any], compacted: str) -> None:
    with StateReader(options, compacted) as empty:
        assert empty.load() == []
    producer = Producer({**options, "transactional.id": compacted})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(compacted, key=b"a", value=b'{"v":1}')
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(compacted, key=b"a", value=b'{"v":"never"}')
    producer.flush()
    producer.abort_transaction(30)
    with StateReader(options, compacted) as reader:
        reader.load()
        assert reader.get(b"a").content == {"v": 1}  # type: ignore[union-attr]  # None would fail the test


def test_keys_are_looked_up_as_they_are_written(options: dict[str, Any], compacted: str) -> None:
    with StateProducer(options, compacted, key_columns=("region", "id")) as writer:
        writer.put({"id": 7, "region": "eu"}, {"v": 1})
    with StateReader(options, compacted, key_columns=("region", "id")) as reader:
        reader.load()
        assert (
            reader.get({"region": "eu", "id": 7})
            == reader.get(b'{"region":"eu","id":7}')
            == reader.get(next(iter(reader)))
        )
        assert reader.get({"region": "us", "id": 7}) is None
        with pytest.raises(ValueRefused, match="columns region, id"):
            reader.get("7")


def test_a_missing_topic_is_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises(TopicRefused, match=f"'{name}' does not exist") as caught:
        StateReader(options, name)
    assert "start what writes the topic" in caught.value.remedy
