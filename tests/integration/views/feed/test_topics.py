"""Topics of other programs → tables: what they hold, since when, and what is not taken for a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from cdc.base.config import Config
from cdc.contract.ports import StoredRecord
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.stack import Kafka
from cdc.views.feed.meter import FeedMeter
from cdc.views.feed.run import run_feeds
from cdc.views.feed.stores import TOPICS, ViewStores
from cdc.views.store.port import Item
from cdc.views.table.facts import encode
from cdc.views.table.feed_facts import FEED, read_feed, topic_key
from tests.support.other_topics import CLEANED_SOON, OtherTopic
from tests.support.topic_settings import delete_records, set_topic
from tests.support.views import Seen, look
from tests.support.waiting import eventually


class Feed:
    """The feed of some topics, started and stopped by the test, and its store in memory."""

    def __init__(self, bootstrap: str, *names: str) -> None:
        topics: dict[str, dict[str, str]] = {name: {} for name in names}
        self.settings: dict[str, Any] = {
            "name": "apps",
            "kafka": {"bootstrap": bootstrap},
            "view": {"store": "memory", "tables": [], "topics": topics},
        }
        self.stores = ViewStores(self.config)
        self.reader = self.stores.open(TOPICS)
        self.meter = FeedMeter()
        self.error: BaseException | None = None

    @property
    def config(self) -> Config:
        return Config.model_validate(self.settings)

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()

        def run() -> None:
            try:
                run_feeds(self.config, stop, self.stores, self.meter)
            except BaseException as error:  # noqa: BLE001 - raised in the test
                self.error = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if self.error is not None:
            raise self.error

    def look(self, topic: str) -> Seen:
        seen = look(self.reader, topic)
        assert seen is not None
        return seen

    def wait_for(self, topic: str, state: str, timeout_s: float = 30) -> Seen:
        def found() -> Seen | None:
            if self.error is not None:
                raise self.error
            seen = look(self.reader, topic)
            return seen if seen is not None and seen.table.state == state else None

        seen = eventually(found, timeout_s, lambda: f"{topic} {state}: {look(self.reader, topic)}")
        assert seen is not None
        return seen

    def wait_for_rows(self, topic: OtherTopic) -> Seen:
        """Wait until the table is the fold of the topic, key by key and byte by byte."""
        wanted = topic.fold()
        eventually(
            lambda: (
                {key: row.row for key, row in self.look(topic.name).rows.items()}
                == {orjson.dumps(key.decode()): value for key, value in wanted.items()}
            ),
            message=lambda: f"{self.look(topic.name)} is {wanted}",
        )
        return self.wait_for(topic.name, "exact")

    def was_away(self, topic: str, seconds: float) -> None:
        """As if the feed had been away for longer than it was."""
        with closing(self.stores.open(TOPICS)) as store:
            assert store.lock()
            known = store.read(read_feed).topics[topic]
            assert known.read_since is not None
            transaction = store.begin()
            earlier = replace(known, read_since=known.read_since - seconds)
            transaction.put(FEED, [Item(topic_key(topic), encode(earlier))])
            transaction.commit()


def rows(count: int, v: int = 0) -> dict[bytes, bytes | None]:
    return {b"k%d" % number: b'{"v": %d}' % v for number in range(count)}


def test_a_topic_is_a_table_and_stays_one(kafka: Kafka) -> None:
    topic, empty = OtherTopic(kafka.bootstrap, 3), OtherTopic(kafka.bootstrap)
    before = time.time()
    topic.put(rows(500))
    topic.put({b"k7": None, b"k8": b'"text"'})
    topic.put_in_transaction({b"k9": b"9", b"k10": None}, commit=True)
    topic.put_in_transaction({b"k11": b"11", b"k12": None}, commit=False)
    feed = Feed(kafka.bootstrap, topic.name, empty.name)
    with feed.running():
        seen = feed.wait_for_rows(topic)
        assert len(seen.rows) == 498
        assert {row.lsn for row in seen.rows.values()} == {None}
        assert all(before - 5 < row.ts / 1_000_000 < time.time() + 5 for row in seen.rows.values())
        assert feed.wait_for(empty.name, "exact").rows == {}
        assert seen.facts.view is not None
        assert seen.facts.view.caught_up_at >= before
        topic.put({b"k9": None, b"new": b"[]"})
        feed.wait_for_rows(topic)
    topic.put(rows(20, v=5))
    with feed.running():
        assert feed.wait_for_rows(topic).table.generation == 1
    assert (
        feed.meter.metrics.registry.get_sample_value("cdc_feed_rows_applied_total", {"table": topic.name}) is not None
    )


def test_a_table_is_not_exact_before_its_last_record_was_read(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Kafka transactions the last offset of a partition is a record, and no marker behind one."""
    topic = OtherTopic(kafka.bootstrap)
    topic.put(rows(1))
    poll, slow_answers = TopicReader.poll, iter(range(5))

    def late(reader: TopicReader, limit: int, timeout_s: float) -> Sequence[StoredRecord]:
        return [] if next(slow_answers, None) is not None else poll(reader, limit, timeout_s)

    monkeypatch.setattr(TopicReader, "poll", late)
    feed = Feed(kafka.bootstrap, topic.name)
    with feed.running():
        assert len(feed.wait_for(topic.name, "exact").rows) == 1


def test_keys_and_values_as_the_configuration_says(kafka: Kafka) -> None:
    topic = OtherTopic(kafka.bootstrap)
    feed = Feed(kafka.bootstrap)
    feed.settings["view"]["topics"] = {topic.name: {"key": "json", "value": "bytes"}}
    topic.put({b'{"id": 7}': b"\x01", b"[1]": b""})
    with feed.running():
        seen = feed.wait_for(topic.name, "exact")
        assert {(key, row.row) for key, row in seen.rows.items()} == {(b'{"id": 7}', b'"AQ=="'), (b"[1]", b'""')}
    feed.settings["view"]["topics"] = {topic.name: {"key": "string", "value": "bytes"}}
    with feed.running():
        eventually(lambda: set(feed.look(topic.name).rows) == {b'"{\\"id\\": 7}"', b'"[1]"'})
        assert feed.wait_for(topic.name, "exact").table.key_kind == "string"


def test_poison_is_told_of_and_healed_by_a_newer_record(kafka: Kafka) -> None:
    topic = OtherTopic(kafka.bootstrap)
    topic.put({**rows(3), b"k1": b"{poison", b"\xff": b"1"})
    feed = Feed(kafka.bootstrap, topic.name)
    with feed.running():
        seen = feed.wait_for(topic.name, "degraded")
        assert set(seen.rows) == {b'"k0"', b'"k2"'}
        assert {each.reason.split(":")[0] for each in seen.unreadable.values()} == {
            "its value is not JSON",
            "its key is not UTF-8 text",
        }
        topic.put({b"k1": b"1", b"\xff": None})
        seen = feed.wait_for(topic.name, "exact")
        assert set(seen.rows) == {b'"k0"', b'"k1"', b'"k2"'}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_not_compacted_is_no_table_until_it_is(kafka: Kafka, policy: str) -> None:
    plain, good = OtherTopic(kafka.bootstrap, cleanup_policy=policy), OtherTopic(kafka.bootstrap)
    plain.put(rows(3))
    good.put(rows(3))
    feed = Feed(kafka.bootstrap, plain.name, good.name)
    with feed.running():
        feed.wait_for_rows(good)
        seen = feed.wait_for(plain.name, "suspect")
        assert f"is not compacted (cleanup.policy={policy})" in seen.table.reason
        assert seen.rows == {}
        set_topic(kafka.bootstrap, plain.name, "cleanup.policy", "compact")
        feed.wait_for_rows(plain)


def test_a_topic_that_is_made_anew_under_the_running_feed(kafka: Kafka) -> None:
    topic, other = OtherTopic(kafka.bootstrap), OtherTopic(kafka.bootstrap)
    topic.put(rows(10))
    other.put(rows(2))
    feed = Feed(kafka.bootstrap, topic.name, other.name)
    with feed.running():
        feed.wait_for_rows(topic)
        topic.delete()
        seen = feed.wait_for(topic.name, "suspect")
        assert "does not exist" in seen.table.reason
        assert len(seen.rows) == 10
        other.put(rows(5))
        feed.wait_for_rows(other)
        topic.create()
        topic.put({b"k3": b"3"})
        seen = feed.wait_for_rows(topic)
        assert (len(seen.rows), seen.table.generation) == (1, 2)


def test_zombies_end_with_the_generation_that_held_them(kafka: Kafka) -> None:
    """Rows are deleted while nobody reads, and the cleaner removes even the tombstones."""
    topic = OtherTopic(kafka.bootstrap, 1, **CLEANED_SOON)
    topic.put(rows(6))
    feed = Feed(kafka.bootstrap, topic.name)
    with feed.running():
        feed.wait_for_rows(topic)
    topic.put({b"k1": None, b"k2": None, b"k3": b"3"})
    topic.lose_tombstones()
    with feed.running():  # away for less than tombstones are kept, as far as anybody can tell
        eventually(lambda: b'"filler"' in feed.look(topic.name).rows)
        assert {b'"k1"', b'"k2"'} < set(feed.look(topic.name).rows), "without the rule they would be there for ever"
    feed.was_away(topic.name, 3_600)
    with feed.running():
        seen = feed.wait_for_rows(topic)
        assert b'"k1"' not in seen.rows
        assert seen.table.generation == 2


def test_a_topic_that_lost_its_oldest_records(kafka: Kafka) -> None:
    topic = OtherTopic(kafka.bootstrap)
    topic.put(rows(10))
    feed = Feed(kafka.bootstrap, topic.name)
    with feed.running():
        feed.wait_for_rows(topic)
    topic.put({b"k1": None})
    delete_records(kafka.bootstrap, topic.name)
    topic.put({b"k2": b"2"})
    with feed.running():
        seen = feed.wait_for_rows(topic)
        assert (len(seen.rows), seen.table.generation) == (1, 2)
