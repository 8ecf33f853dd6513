"""The progress topic for those who look often: what is new is added, and a topic made anew is read anew."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cdc.base.errors import TopicRefused
from cdc.base.lsn import LSN
from cdc.contract.progress import progress_value
from cdc.contract.record import Progress
from cdc.kafka.replay.backfills import read_published
from cdc.kafka.replay.progress_follower import ProgressFollower
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.stack import Kafka
from tests.support.topic_writer import SOURCE, TopicWriter
from tests.support.waiting import eventually


@pytest.fixture
def topics(kafka: Kafka) -> TopicWriter:
    return TopicWriter(kafka.bootstrap)


def test_each_look_says_what_reading_everything_says(topics: TopicWriter) -> None:
    with closing(ProgressFollower(topics.options, topics.progress_topic)) as follower:
        assert follower.look(topics.key).stream is None
        for lsn in (10, 20):
            with topics.kafka_transaction():
                topics.progress(lsn)
            with topics.kafka_transaction(commit=False):
                topics.progress(99)
            assert follower.look(topics.key) == read_published(topics.admin, topics.progress_topic, topics.key)
        newest = follower.look(topics.key).stream
        assert newest is not None
        assert newest.lsn == 20
        assert [each.lsn for each in follower.lately()] == [10, 20]


def test_a_record_in_no_kafka_transaction_is_seen_when_it_is_the_last(topics: TopicWriter) -> None:
    with topics.kafka_transaction():
        topics.progress(10)
    plain = Producer(topics.options)
    plain.produce(topics.progress_topic, progress_value(Progress(LSN(20), None, 1, SOURCE)), topics.key)
    plain.flush()
    with closing(ProgressFollower(topics.options, topics.progress_topic)) as follower:
        assert follower.look(topics.key) == read_published(topics.admin, topics.progress_topic, topics.key)


def test_what_is_written_while_it_looks_is_not_lost(topics: TopicWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    with topics.kafka_transaction():
        topics.progress(10)
    with closing(TopicReader(topics.options)) as reader:
        before = reader.high_watermarks(reader.partitions(topics.progress_topic))
    with topics.kafka_transaction():
        topics.progress(20)
    with closing(ProgressFollower(topics.options, topics.progress_topic)) as follower:
        with monkeypatch.context() as patched:
            patched.setattr(TopicReader, "fence", lambda *_: before)
            follower.look(topics.key)
        assert follower.look(topics.key) == read_published(topics.admin, topics.progress_topic, topics.key)


def test_a_broker_that_does_not_know_the_topic_yet(topics: TopicWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for a topic without partitions, of which nothing was ever seen."""
    with topics.kafka_transaction():
        topics.progress(10)
    with closing(ProgressFollower(topics.options, topics.progress_topic)) as follower:
        with monkeypatch.context() as patched:
            patched.setattr(TopicReader, "partitions", lambda *_: [])
            with pytest.raises(TopicRefused, match="does not exist"):
                follower.look(topics.key)
        assert follower.look(topics.key).stream is not None


def test_a_topic_that_is_gone_and_one_that_is_made_anew(topics: TopicWriter) -> None:
    with topics.kafka_transaction():
        topics.progress(10)
    admin = AdminClient(topics.options)
    with closing(ProgressFollower(topics.options, topics.progress_topic)) as follower:
        assert follower.look(topics.key).stream is not None
        admin.delete_topics([topics.progress_topic])[topics.progress_topic].result()

        def gone() -> bool:
            try:
                follower.look(topics.key)
            except TopicRefused as error:
                return "does not exist" in error.message
            return False

        eventually(gone)
        eventually(lambda: topics.progress_topic not in admin.list_topics(timeout=10).topics)
        topics.create_topic(topics.progress_topic, 1)
        eventually(lambda: not gone())
        assert follower.look(topics.key).stream is None
