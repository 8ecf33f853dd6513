"""The progress topic has several readers, on purpose without shared code: given the same records, all tell the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest

from cdc.base.errors import CdcError
from cdc.base.lsn import LSN
from cdc.contract.backfill import request_key, request_value
from cdc.contract.jobspec.deployment import KafkaSettings, Stream
from cdc.contract.progress import progress_value, stream_key
from cdc.contract.record import BackfillRequest, Position, Progress, TableSchema
from cdc.kafka.replay.backfills import read_published
from cdc.lab.stack import Kafka
from cdc.spark.errors import JobError
from cdc.spark.offsets import Brokers
from cdc.spark.reconcile.bridge_progress import BridgeProgress
from cdc.spark.snapshot.point import wait_published, whole_since
from tests.support.topic_writer import SOURCE, TopicWriter

TABLES = ("public.items", "public.orders", "public.never")


class Facts(NamedTuple):
    """What a reader tells; ``more`` is what not every reader asks for, None then."""

    lsn: LSN
    whole: tuple[bool, ...]
    more: tuple[int, tuple[int, ...], str] | None


@contextmanager
def brokers(topics: TopicWriter) -> Iterator[Brokers]:
    with closing(Brokers(KafkaSettings(options={"bootstrap.servers": topics.bootstrap}))) as found:
        yield found


def stream(topics: TopicWriter) -> Stream:
    return Stream(name=topics.name, slot=f"cdc_{topics.name}")


class ProgressReaderContract:
    """Of a reader of ``{name}.__progress``."""

    tells_more = True

    def read(self, topics: TopicWriter) -> Facts:
        """Everything that is committed.

        Raises:
            CdcError, JobError: there is no progress of the stream.
        """
        raise NotImplementedError

    @pytest.fixture
    def topics(self, kafka: Kafka) -> TopicWriter:
        return TopicWriter(kafka.bootstrap)

    @pytest.fixture
    def items(self, topics: TopicWriter) -> TableSchema:
        return topics.table("items", id="int4")

    def test_the_newest_progress_counts(self, topics: TopicWriter) -> None:
        newest = Progress(LSN(300), Position(LSN(400), 17), 1_700_000_000_000_300, SOURCE, (7, 1 << 40))
        for lsn in (100, 200):
            with topics.kafka_transaction():
                topics.progress(lsn)
        with topics.kafka_transaction():
            topics.producer.produce(topics.progress_topic, key=topics.key, value=progress_value(newest))
        more = (newest.commit_ts, newest.unseen, SOURCE.system_identifier)
        assert self.read(topics) == Facts(LSN(300), (True, True, True), more if self.tells_more else None)

    def test_what_was_aborted_or_is_of_another_slot_does_not_count(self, topics: TopicWriter) -> None:
        with topics.kafka_transaction():
            topics.progress(100)
            other = Progress(LSN(900), None, 0, replace(SOURCE, system_identifier="9"))
            topics.producer.produce(topics.progress_topic, key=stream_key("another"), value=progress_value(other))
        with topics.kafka_transaction(commit=False):
            topics.progress(200)
        assert self.read(topics).lsn == LSN(100)

    def test_a_table_is_whole_when_its_newest_backfill_says_so(self, topics: TopicWriter, items: TableSchema) -> None:
        orders = topics.table("orders", id="int4")
        with topics.kafka_transaction():
            topics.progress(100)
            topics.backfill(items, 90)
            topics.backfill(orders, 90)
        assert self.read(topics).whole == (False, False, True)
        with topics.kafka_transaction():
            topics.backfill(items, 110, state="done", whole=True)
            topics.progress(120)
        assert self.read(topics)[:2] == (LSN(120), (True, False, True))
        with topics.kafka_transaction():
            topics.backfill(orders, 130, state="done", whole=True)
            topics.backfill(items, 130, state="waiting", cause="gap")
            topics.progress(140)
        assert self.read(topics)[:2] == (LSN(140), (False, True, True))

    def test_what_people_ask_is_no_progress(self, topics: TopicWriter, items: TableSchema) -> None:
        asked = BackfillRequest("r1", "start", ("public.items",))
        with topics.kafka_transaction():
            topics.progress(100)
            topics.producer.produce(topics.progress_topic, key=request_key(asked.request), value=request_value(asked))
            topics.know(items.topic)
            topics.producer.produce(topics.progress_topic, key=request_key(asked.request), value=None)
            topics.producer.produce(topics.progress_topic, key=json.dumps({"later": 1}), value=b'{"v":2}')
        assert self.read(topics)[:2] == (LSN(100), (True, True, True))

    def test_before_the_first_progress_there_is_nothing_to_go_by(self, topics: TopicWriter, items: TableSchema) -> None:
        with topics.kafka_transaction():
            topics.backfill(items, 90)
        with pytest.raises((CdcError, JobError), match=r"has no progress|has published only up to 0/0|nothing"):
            self.read(topics)


class TestBridgeAndSink(ProgressReaderContract):
    """``cdc.kafka.replay``: what the bridge resumes from, the sink waits for and ``cdc status`` shows."""

    def read(self, topics: TopicWriter) -> Facts:
        found = read_published(topics.admin, topics.progress_topic, topics.key)
        if found.stream is None:
            raise CdcError("nothing", remedy="try again")
        whole = tuple(each not in found.backfills or found.backfills[each].progress.whole for each in TABLES)
        at = found.stream
        return Facts(at.lsn, whole, (at.commit_ts, at.unseen, at.source.system_identifier))


class TestReconcile(ProgressReaderContract):
    """``cdc reconcile``: its fence."""

    def read(self, topics: TopicWriter) -> Facts:
        settings = KafkaSettings(options={"bootstrap.servers": topics.bootstrap})
        with brokers(topics) as found, closing(BridgeProgress(settings, stream(topics), found)) as progress:
            progress.catch_up()
            more = (progress.commit_ts_us, progress.unseen, progress.system_identifier)
            return Facts(progress.lsn, tuple(map(progress.is_whole, TABLES)), more)


class TestSnapshot(ProgressReaderContract):
    """``cdc snapshot``: which positions can be answered."""

    tells_more = False

    def read(self, topics: TopicWriter) -> Facts:
        with brokers(topics) as found:
            published = wait_published(found, stream(topics), LSN(1), timeout_s=0)
        return Facts(published.lsn, tuple(whole_since(published, each) is not None for each in TABLES), None)
