"""Rows ahead of the progress, as delivery: idempotent leaves them: the replica shows whole transactions only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from cdc.base.lsn import LSN
from cdc.contract.progress import progress_value
from cdc.contract.record import Lead, Progress, TableSchema
from tests.integration.sink.postgres.conftest import Mirror, running
from tests.support.servers import Database
from tests.support.topic_writer import SOURCE, TopicWriter
from tests.support.waiting import eventually

Send = Callable[[TableSchema, dict[str, Any], int, int], None]


@pytest.fixture
def send(topics: TopicWriter) -> Send:
    """Write a row without a Kafka transaction."""
    producer = Producer({**topics.options, "enable.idempotence": True, "partitioner": "murmur2_random"})

    def one(table: TableSchema, row: dict[str, Any], lsn: int, seq: int) -> None:
        header = topics.header(table, lsn, seq)
        value = None if len(row) == 1 else b'{"id":%d,"n":%d}' % (row["id"], row["n"])
        producer.produce(table.topic, value, topics.key_of(table, row), headers=[("cdc", header)])
        assert producer.flush(10) == 0

    return one


def progress(topics: TopicWriter, lsn: int, sent: int, *, is_open: bool = True) -> None:
    value = progress_value(Progress(LSN(lsn), None, 5, SOURCE, lead=Lead(LSN(sent), is_open)))
    with topics.kafka_transaction():
        topics.producer.produce(topics.progress_topic, key=topics.key, value=value)


def begin(topics: TopicWriter) -> TableSchema:
    table = topics.table("items", id="int4", n="int4")
    with topics.kafka_transaction():
        topics.define(table)
    progress(topics, 5, 5)
    return table


def rows(database: Database) -> list[tuple[Any, ...]]:
    return database.execute("select id, n from items order by id")


def test_a_part_of_a_transaction_is_never_seen(
    topics: TopicWriter, send: Send, database: Database, mirror: Mirror
) -> None:
    table = begin(topics)
    for number in range(8):
        send(table, {"id": number, "n": 0}, 10, number + 1)
    progress(topics, 11, 10)
    mirror.wait_for_cut(11)
    for number in range(4):
        send(table, {"id": number, "n": 1}, 20, number + 1)
    progress(topics, 15, 20)  # a keepalive moved the stream between the two
    mirror.wait_for_cut(15)
    assert rows(database) == [(number, 0) for number in range(8)]
    for number in range(4, 8):
        send(table, {"id": number, "n": 1}, 20, number + 1)
    progress(topics, 21, 20)
    mirror.wait_for_cut(21)
    assert rows(database) == [(number, 1) for number in range(8)]


def test_the_last_record_of_a_partition_is_read_although_no_marker_follows(
    topics: TopicWriter, send: Send, database: Database, mirror: Mirror
) -> None:
    """Also behind a clean end, when rows may not be ahead any more."""
    table = begin(topics)
    for lsn in range(10, 60, 2):
        send(table, {"id": lsn, "n": lsn}, lsn, 1)
        progress(topics, lsn + 1, lsn, is_open=lsn < 30)
        mirror.wait_for_cut(lsn + 1)
        assert rows(database)[-1] == (lsn, lsn)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_a_stopped_bridge_wrote_late_is_not_applied(
    topics: TopicWriter, send: Send, database: Database, config: Any, is_restarted: bool
) -> None:
    """Behind newer rows of other keys, and of its own; also as the first that a sink reads."""
    table = begin(topics)
    with running(config, database) as mirror:
        for number in range(8):
            send(table, {"id": number, "n": 0}, 10, number + 1)
        for number in range(8):
            send(table, {"id": number, "n": 1}, 20, number + 1)
        progress(topics, 21, 20)
        mirror.wait_for_cut(21)
        if not is_restarted:
            for number in range(8):
                send(table, {"id": number, "n": 0}, 10, number + 1)
            progress(topics, 25, 20)
            mirror.wait_for_cut(25)
    if is_restarted:
        for number in range(8):
            send(table, {"id": number, "n": 0}, 10, number + 1)
        progress(topics, 25, 20)
        with running(config, database) as mirror:
            mirror.wait_for_cut(25)
            send(table, {"id": 9, "n": 9}, 30, 1)
            progress(topics, 31, 30)
            mirror.wait_for_cut(31)
    assert [row for row in rows(database) if row[0] < 9] == [(number, 1) for number in range(8)]


def test_a_cut_is_not_called_true_while_rows_beyond_it_may_have_erased_what_it_needs(
    topics: TopicWriter, send: Send, database: Database, mirror: Mirror
) -> None:
    """A bridge died with a row ahead of its progress; how long ago, and what the cleaner did since, nobody knows."""
    table = begin(topics)
    send(table, {"id": 1, "n": 0}, 10, 1)
    send(table, {"id": 1, "n": 1}, 20, 1)
    progress(topics, 11, 10)
    eventually(lambda: mirror.reports and mirror.reports[-1].progress.lsn == 11)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert not any(each.is_true for each in mirror.reports if each.progress.lsn == 11)
        mirror.stop.wait(0.1)
    progress(topics, 21, 20)
    progress(topics, 22, 20)
    mirror.wait_for_cut(21)
    assert rows(database) == [(1, 1)]
