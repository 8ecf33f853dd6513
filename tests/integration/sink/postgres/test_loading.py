"""A replica table is ``loading`` while its topic does not hold the whole source table, ``exact`` from then on."""

from __future__ import annotations

import pytest

from cdc.base.config import Config
from cdc.contract.record import TableSchema
from tests.integration.sink.postgres.conftest import Mirror, running
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


def state(mirror: Mirror, table: str = "items") -> tuple[str, int]:
    """As committed with a cut, and the rows that the table holds."""
    states = mirror.replica.execute(
        "select state from cdc.mirrored_table where replica_table = %s", [f"public.{table}"]
    )
    return states[0][0], mirror.replica.execute(f"select count(*) from {table}")[0][0]


def wait_for_rows(mirror: Mirror, rows: int) -> None:
    eventually(lambda: mirror.replica.execute("select count(*) from items")[0][0] == rows, message=f"{rows} rows")


def begin(topics: TopicWriter, *, lsn: int = 11) -> TableSchema:
    """The first backfill of ``items`` is under way: a row of the stream, one of the backfill."""
    table = topics.table("items", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(table)
        topics.upsert(table, {"id": 1, "v": 1}, lsn - 1)
        topics.backfilled(table, {"id": 2, "v": 1}, lsn)
        topics.backfill(table, lsn, rows=1)
        topics.progress(lsn)
    return table


def finish(topics: TopicWriter, table: TableSchema, lsn: int, row: int) -> None:
    with topics.kafka_transaction():
        topics.backfilled(table, {"id": row, "v": 1}, lsn, 2)
        topics.backfill(table, lsn, state="done", whole=True, rows=2)
        topics.progress(lsn)


def test_loading_until_the_cut_that_makes_it_whole(topics: TopicWriter, mirror: Mirror) -> None:
    table = begin(topics)
    other = topics.table("other", id="int4")
    topics.transaction(12, (other, {"id": 1}))
    with topics.kafka_transaction():
        topics.define(other)
        topics.progress(15)
    mirror.wait_for_cut(15)
    assert state(mirror) == ("loading", 2), "the topic does not hold every row yet"
    assert state(mirror, "other") == ("exact", 1), "nothing says that a backfill of it goes on"
    assert {each.name: each.state for each in mirror.reports[-1].tables.values()} == {
        "public.items": "loading",
        "public.other": "exact",
    }
    finish(topics, table, 21, 3)
    mirror.wait_for_cut(21)
    assert state(mirror) == ("exact", 3)


def test_rows_and_the_end_of_a_backfill_arrive_although_the_source_stands_still(
    topics: TopicWriter, mirror: Mirror
) -> None:
    table = begin(topics)
    mirror.wait_for_cut(11)
    with topics.kafka_transaction():
        topics.backfilled(table, {"id": 3, "v": 1}, 11, 2)
        topics.backfill(table, 11, rows=2)
        topics.progress(11)
    wait_for_rows(mirror, 3)
    assert state(mirror) == ("loading", 3)
    finish(topics, table, 11, 4)
    wait_for_rows(mirror, 4)
    assert state(mirror) == ("exact", 4)


def test_loading_again_after_a_gap(topics: TopicWriter, mirror: Mirror) -> None:
    table = begin(topics)
    finish(topics, table, 21, 3)
    mirror.wait_for_cut(21)
    assert state(mirror) == ("exact", 3)
    with topics.kafka_transaction():
        topics.backfill(table, 31, cause="gap", state="waiting")
        topics.progress(31)
    mirror.wait_for_cut(31)
    assert state(mirror) == ("loading", 3)
    finish(topics, table, 41, 4)
    mirror.wait_for_cut(41)
    assert state(mirror) == ("exact", 4)


def test_a_backfill_that_somebody_asked_for_takes_nothing_back(topics: TopicWriter, mirror: Mirror) -> None:
    table = begin(topics)
    finish(topics, table, 21, 3)
    with topics.kafka_transaction():
        topics.backfill(table, 31, cause="request", state="running", whole=True)
        topics.progress(31)
    mirror.wait_for_cut(31)
    assert state(mirror) == ("exact", 3)


def test_restart_remembers_what_is_loading(topics: TopicWriter, database: Database, config: Config) -> None:
    with running(config, database) as first:
        table = begin(topics)
        first.wait_for_cut(11)
    with running(config, database) as second:
        topics.transaction(20, (table, {"id": 1, "v": 2}))
        second.wait_for_cut(21)
        assert state(second) == ("loading", 2)
    finish(topics, table, 31, 3)
    topics.transaction(40, (table, {"id": 1, "v": 3}))
    with running(config, database) as third:
        third.wait_for_cut(41)
        assert state(third) == ("exact", 3)
    with running(config, database) as fourth:
        topics.transaction(50, (table, {"id": 1, "v": 4}))
        fourth.wait_for_cut(51)
        assert state(fourth) == ("exact", 3)


def test_a_first_backfill_that_floods_its_topic_does_not_hold_up_the_others(
    topics: TopicWriter, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.kafka.replay.cut.NEAR", 1_000)
    loading, whole = begin(topics), topics.table("orders", id="int4")
    with topics.kafka_transaction():
        topics.define(whole)
        topics.backfill(whole, 12, state="done", whole=True)
        topics.progress(12)
    mirror.wait_for_cut(12)
    with topics.kafka_transaction():
        for number in range(3, 90_003):
            topics.backfilled(loading, {"id": number, "v": 1}, 20)
        topics.progress(20)
        topics.upsert(whole, {"id": 1}, 30)
        topics.progress(31)
    mirror.wait_for_cut(31)
    first = next(place for place, each in enumerate(mirror.reports) if each.progress.lsn == 31)
    so_far = sum(each.rows.get(loading.topic, 0) for each in mirror.reports[: first + 1])
    assert so_far < 90_002, "the other table did not wait for all of them"
    finish(topics, loading, 41, 90_003)
    mirror.wait_for_cut(41)
    eventually(lambda: state(mirror) == ("exact", 90_003))
    assert state(mirror, "orders") == ("exact", 1)
    assert mirror.replica.execute("select count(read_since) from cdc.mirrored_table")[0][0] == 0
