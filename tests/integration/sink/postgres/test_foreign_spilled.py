"""A record of another system in the midst of a transaction that is larger than memory."""

from __future__ import annotations

import itertools

import pytest

import cdc.sink.apply.session as mirror_session
from cdc.kafka.replay import foreign
from cdc.lab.stack import Kafka
from tests.integration.sink.postgres.conftest import running, sink_config
from tests.integration.sink.postgres.test_exactness import assert_holds, publish, rows_of, state
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually

ROWS, PART, FAR = 2_000, 500, 1 << 40


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("is_overwritten", [True, False], ids=["overwritten", "left alone"])
def test_it_is_no_row_and_keeps_no_cut_from_coming(
    kafka: Kafka, database: Database, monkeypatch: pytest.MonkeyPatch, partitions: int, is_overwritten: bool
) -> None:
    """It went into the replica as a row, and for as long as its LSN was ahead there was no cut any more."""
    monkeypatch.setattr(foreign, "PATIENCE_S", 0.2)
    monkeypatch.setattr(mirror_session, "MAX_RECORDS", 200)
    monkeypatch.setattr(mirror_session, "RECORDS_PER_POLL", 100)
    topics = TopicWriter(kafka.bootstrap, partitions=partitions)
    table, beside = topics.table("items", id="int4", v="int4"), topics.table("beside", id="int4", v="int4")
    publish(topics, table, 8, rows_of(1))
    publish(topics, beside, 10, rows_of(1))
    theirs, lsns = 1_000 if is_overwritten else -1, itertools.count(100, 10)
    with running(sink_config(topics, database), database) as mirror:
        mirror.wait_for_cut(11)
        for first in range(0, ROWS, PART):  # as the bridge cuts a large transaction
            with topics.kafka_transaction():
                for number in range(first, first + PART):
                    if number == PART + 50:
                        topics.upsert(table, {"id": theirs, "v": 99}, FAR)
                    topics.upsert(table, {"id": number, "v": number % 7}, 20, number + 1)
                topics.progress(11, (20, first + PART))
        with topics.kafka_transaction():
            topics.progress(21)

        def moves() -> tuple[str, int]:
            lsn = next(lsns)
            publish(topics, beside, lsn, rows_of(1, v=lsn))
            mirror.wait_for_cut(lsn + 1)
            (count,) = database.execute("select count(*) from items")[0]
            return state(database, "items")[0], count

        wanted = "exact" if is_overwritten else "catching_up"
        eventually(lambda: moves() == (wanted, ROWS), 30, lambda: f"{moves()}")
        assert state(database, "beside")[0] == "exact"
        assert database.execute("select count(*) from items where v = 99") == [(0,)]
        if not is_overwritten:
            with topics.kafka_transaction():  # the repair: the bridge writes the key as the source has it
                topics.delete(table, {"id": theirs}, lsn := next(lsns))
                topics.progress(lsn + 1)
            eventually(lambda: moves() == ("exact", ROWS), 30, lambda: f"{moves()}")
    assert mirror.error is None
    assert_holds(database, topics, table)
