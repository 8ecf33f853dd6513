"""Rows that a replica table refuses stand aside: it holds the topic's rows without them, and is never called exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdc.base.config import Config
from cdc.contract.record import TableSchema
from cdc.sink.apply.topics import RebuildOrder
from cdc.sink.dialects import open_replica
from tests.integration.sink.postgres.conftest import Mirror, running, sink_config
from tests.integration.sink.postgres.test_tables import publish, state_of
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually

BUDGET = 4


@pytest.fixture
def config(topics: TopicWriter, database: Database) -> Config:
    """Of a replica whose table ``t`` takes no negative ``v``."""
    database.execute("create table t (id int4 primary key, v int4 check (v >= 0))")
    return sink_config(topics, database, quarantine={"public.t": {"budget": BUDGET}})


@pytest.fixture
def table(topics: TopicWriter) -> TableSchema:
    return topics.table("t", id="int4", v="int4")


@pytest.fixture
def good(topics: TopicWriter) -> TableSchema:
    return topics.table("good", id="int4")


@pytest.fixture
def mirror(config: Config, database: Database, topics: TopicWriter, good: TableSchema) -> Iterator[Mirror]:
    publish(topics, 4, good, {"id": 1})
    with running(config, database) as started:
        yield started


def aside(database: Database, name: str = "t") -> list[int]:
    """The ids whose newest records the replica refuses."""
    query = "select key from cdc.quarantined_row where topic like %s"
    return sorted(json.loads(key)["id"] for (key,) in database.execute(query, [f"%.public.{name}"]))


def rows(database: Database) -> dict[int, int]:
    return dict(database.execute("select * from t"))


def test_the_table_goes_on_without_them(
    topics: TopicWriter, database: Database, mirror: Mirror, table: TableSchema, good: TableSchema
) -> None:
    """Of the refused keys it holds no older row. The next record of a key ends its entry, whatever it is."""
    publish(topics, 10, table, *({"id": n, "v": n} for n in range(10)))
    mirror.wait_for_cut(11)
    assert state_of(database, table)[0] == "exact"
    publish(topics, 20, table, {"id": 3, "v": -1}, {"id": 5, "v": 50}, {"id": 11, "v": -1}, {"id": 7, "v": -2})
    mirror.wait_for_cut(21)
    assert (state_of(database, table)[0], state_of(database, good)[0]) == ("excepted", "exact")
    assert aside(database) == [3, 7, 11]
    assert rows(database) == {**{n: n for n in range(10) if n not in (3, 7)}, 5: 50}
    refused = open_replica(mirror.config, application_name="test").refused()
    assert {each.topic for each in refused} == {table.topic}
    assert all("t_v_check" in each.reason for each in refused)

    publish(topics, 30, table, {"id": 3, "v": 33}, {"id": 11, "v": -5})  # one is good again, one is refused once more
    mirror.wait_for_cut(31)
    assert aside(database) == [7, 11]
    assert rows(database)[3] == 33
    with topics.kafka_transaction():
        topics.delete(table, {"id": 7}, 40, 1)
        topics.upsert(table, {"id": 11, "v": 0}, 40, 2)
        topics.progress(41)
    mirror.wait_for_cut(41)
    assert (state_of(database, table)[0], aside(database)) == ("exact", [])
    assert rows(database) == {**{n: n for n in range(10) if n != 7}, 3: 33, 5: 50, 11: 0}


def test_a_record_that_is_not_a_row(
    topics: TopicWriter, database: Database, mirror: Mirror, table: TableSchema
) -> None:
    """Found before the database sees it, in the middle of good ones, and twice for one key."""
    publish(topics, 10, table, {"id": 1, "v": 1}, {"id": 2, "v": 2}, {"id": 3, "v": 3})
    mirror.wait_for_cut(11)
    with topics.kafka_transaction():
        header = topics.header(table, 20, 1)
        topics.write(table.topic, b'{"id":2}', b"[", header)
        topics.write(table.topic, b'{"id":2}', b'{"id":2', topics.header(table, 20, 2))
        topics.write(table.topic, b'{"id":4}', b'{"id":4,"x":1}', topics.header(table, 20, 3))
        topics.upsert(table, {"id": 3, "v": 30}, 20, 4)
        topics.upsert(table, {"id": 5, "v": -1}, 20, 5)
        topics.progress(21)
    mirror.wait_for_cut(21)
    assert (state_of(database, table)[0], aside(database)) == ("excepted", [2, 4, 5])
    assert rows(database) == {1: 1, 3: 30}
    publish(topics, 30, table, *({"id": n, "v": n} for n in (2, 4, 5)))
    mirror.wait_for_cut(31)
    assert (state_of(database, table)[0], aside(database)) == ("exact", [])
    assert rows(database) == {1: 1, 2: 2, 3: 30, 4: 4, 5: 5}


def test_more_than_the_budget_stop_the_table(
    topics: TopicWriter, database: Database, config: Config, table: TableSchema, good: TableSchema
) -> None:
    """Nothing of that cut is applied to it; entries of former cuts stay. The other tables go on."""
    publish(topics, 10, table, {"id": 1, "v": -1}, {"id": 2, "v": 2})
    publish(topics, 12, good, {"id": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(13)
        with topics.kafka_transaction():
            for seq, n in enumerate(range(3, 10), 1):
                topics.upsert(table, {"id": n, "v": -n if n % 2 else n}, 20, seq)
            topics.upsert(table, {"id": 1, "v": 1}, 20, 8)  # this one leaves first, which makes no room: 3, 5, 7, 9
            topics.upsert(table, {"id": 11, "v": -1}, 20, 9)
            topics.upsert(good, {"id": 2}, 20, 10)
            topics.progress(21)
        mirror.wait_for_cut(21)
        state, reason, _, partition, offset = state_of(database, table)
        assert (state, state_of(database, good)[0]) == ("stopped", "exact")
        assert f"{BUDGET} rows of the table are in quarantine already, as many as sink.quarantine allows" in reason
        assert offset is not None
        assert partition is not None
        assert (rows(database), aside(database)) == ({2: 2}, [1])
    database.execute("alter table t drop constraint t_v_check")
    with running(config, database) as mirror:
        eventually(lambda: state_of(database, table)[0] == "exact", 30)
    assert rows(database) == {1: 1, 2: 2, 4: 4, 6: 6, 8: 8, 3: -3, 5: -5, 7: -7, 9: -9, 11: -1}
    assert aside(database) == []


def test_what_cannot_be_put_aside(
    topics: TopicWriter, database: Database, mirror: Mirror, table: TableSchema, good: TableSchema
) -> None:
    """A tombstone, and a row whose older version cannot be deleted: the table stops as without a quarantine."""
    database.execute("create table child (of int4 references t)")
    publish(topics, 10, table, {"id": 1, "v": 1}, {"id": 2, "v": 2})
    mirror.wait_for_cut(11)
    database.execute("insert into child values (1)")
    publish(topics, 20, table, {"id": 1, "v": -1})
    mirror.wait_for_cut(21)
    state, reason, *_ = state_of(database, table)
    assert state == "stopped"
    assert "child_of_fkey" in reason
    assert (rows(database), aside(database)) == ({1: 1, 2: 2}, [])
    publish(topics, 30, good, {"id": 3})
    mirror.wait_for_cut(31)
    assert state_of(database, good)[0] == "exact"


def test_a_new_session_and_a_rebuild(
    topics: TopicWriter, database: Database, config: Config, table: TableSchema, good: TableSchema
) -> None:
    """A session goes on with the entries; a rebuild judges every record again, and finds what is good by now."""
    publish(topics, 10, table, {"id": 1, "v": -1}, {"id": 2, "v": -2}, {"id": 3, "v": 3})
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    assert (state_of(database, table)[0], aside(database)) == ("excepted", [1, 2])
    publish(topics, 20, table, {"id": 2, "v": 2}, {"id": 4, "v": -4})
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
        assert (state_of(database, table)[0], aside(database)) == ("excepted", [1, 4])
    database.execute("alter table t drop constraint t_v_check; alter table t add constraint c check (v <> -4)")
    with running(config, database, RebuildOrder(["public.t"])) as mirror:
        eventually(lambda: state_of(database, table)[0] == "excepted" and aside(database) == [4], 30)
    assert rows(database) == {1: -1, 2: 2, 3: 3}


def test_other_tables_have_no_quarantine(
    topics: TopicWriter, database: Database, mirror: Mirror, table: TableSchema
) -> None:
    database.execute("create table other (id int4 primary key, v int4 check (v >= 0))")
    other = topics.table("other", id="int4", v="int4")
    publish(topics, 10, other, {"id": 1, "v": -1})
    publish(topics, 12, table, {"id": 1, "v": -1})
    mirror.wait_for_cut(13)
    assert (state_of(database, other)[0], state_of(database, table)[0]) == ("stopped", "excepted")
    assert (aside(database, "other"), aside(database)) == ([], [1])


@pytest.mark.parametrize("share", [2, 50])
def test_many_among_many(topics: TopicWriter, database: Database, share: int) -> None:
    """A batch is narrowed to each record at fault, however many there are and wherever they lie."""
    database.execute("create table t (id int4 primary key, v int4 check (v >= 0))")
    table = topics.table("t", id="int4", v="int4")
    config = sink_config(topics, database, quarantine={"public.t": {"budget": 1_000}})

    def value(n: int, generation: int) -> int:
        return -1 if (n + generation) % share == 0 else n * 10 + generation

    with running(config, database) as mirror:
        for generation in range(4):
            lsn = 10 + 10 * generation
            publish(topics, lsn, table, *({"id": n, "v": value(n, generation)} for n in range(500)))
            mirror.wait_for_cut(lsn + 1)
            wanted: dict[int, Any] = {n: value(n, generation) for n in range(500)}
            assert rows(database) == {n: v for n, v in wanted.items() if v >= 0}
            assert aside(database) == [n for n, v in wanted.items() if v < 0]
