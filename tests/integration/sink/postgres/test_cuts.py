"""What the replica holds after a cut, and that nothing else is ever seen there."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from cdc.base.config import Config
from cdc.contract.ports import Partition
from cdc.kafka.replay.reader import TopicReader
from cdc.lab.stack import Kafka
from cdc.sink.apply import session as mirror_session
from tests.integration.sink.postgres.conftest import Mirror, running, sink_config
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


def test_upserts_updates_and_deletes(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    table = topics.table("items", id="int4", name="text")
    with topics.kafka_transaction():
        topics.define(table)
        for i in range(10):
            topics.upsert(table, {"id": i, "name": f"item {i}"}, 10, i + 1)
        topics.progress(11)
    mirror.wait_for_cut(11)
    with topics.kafka_transaction():
        topics.upsert(table, {"id": 1, "name": "changed"}, 20)
        topics.upsert(table, {"id": 2, "name": "once"}, 20, 2)
        topics.upsert(table, {"id": 2, "name": "twice"}, 20, 3)
        topics.delete(table, {"id": 3}, 20, 4)
        topics.delete(table, {"id": 4}, 20, 5)
        topics.upsert(table, {"id": 4, "name": "again"}, 20, 6)
        topics.upsert(table, {"id": 5, "name": "not for long"}, 20, 7)
        topics.delete(table, {"id": 5}, 20, 8)
        topics.delete(table, {"id": 999}, 20, 9)
        topics.progress(21)
    mirror.wait_for_cut(21)
    assert database.execute("select id, name from items order by id") == [
        (0, "item 0"), (1, "changed"), (2, "twice"), (4, "again"),
        (6, "item 6"), (7, "item 7"), (8, "item 8"), (9, "item 9"),
    ]  # fmt: skip
    assert database.execute("select lsn::text, commit_ts, system_identifier from cdc.cut") == [
        ("0/15", 1_700_000_000_000_021, "7300000000000000001")
    ]
    assert database.execute("select state, reason, rows_applied from cdc.mirrored_table") == [("exact", None, 16)]


def test_records_beyond_the_cut_are_held_back(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    table = topics.table("items", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(table)
        for i in range(10):
            topics.upsert(table, {"id": i, "v": 1}, 10)
        topics.progress(11)
    mirror.wait_for_cut(11)
    with topics.kafka_transaction():
        for i in range(10):
            topics.upsert(table, {"id": i, "v": 2}, 20)
        for i in range(5):
            topics.upsert(table, {"id": i, "v": 3}, 30)
        topics.progress(21, partial=(30, 5))
    with topics.kafka_transaction():
        topics.progress(25)
    mirror.wait_for_cut(25)
    assert database.execute("select v, count(*) from items group by v") == [(2, 10)]
    with topics.kafka_transaction():
        for i in range(5, 10):
            topics.upsert(table, {"id": i, "v": 3}, 30)
        topics.progress(31)
    mirror.wait_for_cut(31)
    assert database.execute("select v, count(*) from items group by v") == [(3, 10)]


def test_respelled_keys_of_a_transaction_larger_than_memory(
    topics: TopicWriter, database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UPDATE … SET id = trim_scale(id): each 1.0 becomes 1, a tombstone and an upsert of keys that are equal."""
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 200)
    table, numbers = topics.table("prices", id="numeric", v="text"), range(1, 2001)
    with topics.kafka_transaction():
        topics.define(table)
        for n in numbers:
            topics.upsert(table, {"id": f"{n}.0", "v": f"v{n}"}, 10, n)
        topics.progress(11)
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
        with topics.kafka_transaction():
            for n in numbers:
                topics.delete(table, {"id": f"{n}.0"}, 20, 2 * n)
                topics.upsert(table, {"id": f"{n}", "v": f"v{n}"}, 20, 2 * n + 1)
            topics.progress(21)
        mirror.wait_for_cut(21)
    assert database.execute("select id::text, v from prices order by prices.id") == [(f"{n}", f"v{n}") for n in numbers]
    assert database.execute("select state from cdc.mirrored_table") == [("exact",)]


def test_a_transaction_larger_than_memory_is_fetched_once(
    kafka: Kafka, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each part of it the partitions were paused, and the client dropped all that it had fetched ahead."""
    held: list[Collection[Partition]] = []

    def hold(reader: TopicReader, partitions: Collection[Partition]) -> None:
        held.append(partitions)
        plainly(reader, partitions)

    plainly = TopicReader.hold
    monkeypatch.setattr(TopicReader, "hold", hold)
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 200)
    monkeypatch.setattr(mirror_session, "RECORDS_PER_POLL", 100)
    topics = TopicWriter(kafka.bootstrap, partitions=1)
    table = topics.table("items", id="int4")
    with topics.kafka_transaction():
        topics.define(table)
        for i in range(1_000):
            topics.upsert(table, {"id": i}, 10, i + 1)
        topics.progress(11)
    with running(sink_config(topics, database), database) as mirror:
        mirror.wait_for_cut(11)  # which a table that has only just begun need not be part of
        eventually(lambda: database.execute("select state from cdc.mirrored_table") == [("exact",)])
    assert database.execute("select count(*) from items") == [(1_000,)]
    assert len(held) > 3, "nothing was written before its end"
    assert not any(held)


def test_progress_readable_before_rows_of_another_partition(
    topics: TopicWriter, database: Database, mirror: Mirror
) -> None:
    """Commit markers reach partitions one by one: here an open Kafka transaction hides one partition's rows longer."""
    table = topics.table("items", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(table)
        topics.upsert(table, {"id": 1, "v": 1}, 10)
        topics.upsert(table, {"id": 2, "v": 1}, 10)
        topics.upsert(table, {"id": 3, "v": 1}, 10)
        topics.progress(11)
    mirror.wait_for_cut(11)
    slow = topics.new_producer(f"{topics.name}-slow")
    slow.begin_transaction()
    slow.produce(table.topic, key=b"{}", value=None, partition=0)
    slow.flush()
    with topics.kafka_transaction():
        for i in range(20):
            topics.upsert(table, {"id": i, "v": 2}, 20)
        topics.progress(21)
    with topics.kafka_transaction():
        topics.progress(22)
    eventually(lambda: mirror.reports, message="still running")
    assert mirror.reports[-1].progress.lsn == 11
    assert database.execute("select distinct v from items") == [(1,)]
    slow.abort_transaction()
    mirror.wait_for_cut(22)
    assert database.execute("select v, count(*) from items group by v") == [(2, 20)]


def test_aborted_records_are_never_applied(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    table = topics.table("items", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(table)
        topics.upsert(table, {"id": 1, "v": 1}, 10)
        topics.progress(11)
    with topics.kafka_transaction(commit=False):
        topics.upsert(table, {"id": 1, "v": 666}, 20)
        topics.progress(21)
    with topics.kafka_transaction():
        topics.progress(15)
    mirror.wait_for_cut(15)
    assert database.execute("select id, v from items") == [(1, 1)]


def test_cuts_move_without_rows(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    for lsn in (11, 12, 13):
        with topics.kafka_transaction():
            topics.progress(lsn)
        mirror.wait_for_cut(lsn)
    assert database.execute("select lsn::text from cdc.cut") == [("0/D",)]


def test_table_that_appears_later(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    with topics.kafka_transaction():
        topics.progress(5)
    mirror.wait_for_cut(5)
    for n, lsn in enumerate((10, 20, 30)):
        table = topics.table(f"t{n}", id="int4")
        with topics.kafka_transaction():
            topics.define(table)
            topics.upsert(table, {"id": n}, lsn)
            topics.progress(lsn + 1)
        mirror.wait_for_cut(lsn + 1)
        assert database.execute(f"select id from t{n}") == [(n,)]


def test_restart_goes_on_where_the_replica_stands(topics: TopicWriter, database: Database, config: Config) -> None:
    table = topics.table("items", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(table)
        topics.upsert(table, {"id": 1, "v": 1}, 10)
        topics.progress(11)
        topics.upsert(table, {"id": 2, "v": 1}, 20)
        topics.progress(11, partial=(20, 1))
    with running(config, database) as mirror:
        eventually(lambda: mirror.reports)
    assert not mirror.reports[-1].is_true, "a part of what lies beyond is published already"
    assert database.execute("select lsn, applied_lsn::text from cdc.cut") == [(None, "0/B")]
    assert database.execute("select state from cdc.mirrored_table") == [("loading",)]
    assert database.execute("select id from items") == [(1,)]
    with topics.kafka_transaction():
        topics.upsert(table, {"id": 3, "v": 1}, 20, 2)
        topics.progress(21)
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
    assert database.execute("select id from items order by id") == [(1,), (2,), (3,)]
    assert database.execute("select rows_applied from cdc.mirrored_table") == [(3,)], "no record is applied twice"


def test_second_sink_waits_for_the_first(topics: TopicWriter, database: Database, config: Config) -> None:
    with topics.kafka_transaction():
        topics.progress(5)
    with running(config, database) as first:
        first.wait_for_cut(5)
        with running(config, database) as second:
            with topics.kafka_transaction():
                topics.progress(6)
            first.wait_for_cut(6)
            assert not second.reports
            first.stop.set()
            with topics.kafka_transaction():
                topics.progress(7)
            second.wait_for_cut(7)
