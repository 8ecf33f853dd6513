"""Rows that are new to a table that was empty are copied straight into it; whatever speaks against it is noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cdc.base.config import Config
from cdc.contract.record import TableSchema
from tests.integration.sink.postgres.conftest import Mirror, running
from tests.integration.sink.postgres.test_tables import state_of
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter

MANY = 300
"""Enough for a COPY of their own beside rows that are staged."""

LOG = """
    create table said (at serial, what text);
    create function say() returns trigger language plpgsql as $$
    begin insert into public.said (what) values (split_part(current_query(), ' ', 1)); return null; end $$;
    create trigger say after insert on t execute function say();
"""
"""What each statement that puts rows into ``t`` begins with."""


def publish(topics: TopicWriter, table: TableSchema, lsn: int, rows: Sequence[Mapping[str, Any]]) -> None:
    with topics.kafka_transaction():
        topics.define(table)
        for seq, row in enumerate(rows, 1):
            topics.upsert(table, row, lsn, seq)
        topics.progress(lsn + 1)


def rows_of(*ids: int, v: int = 0) -> list[dict[str, int]]:
    return [{"id": each, "v": v} for each in ids]


def ways(database: Database) -> list[str]:
    """How rows came into the table since this was asked last."""
    said = [what for (what,) in database.execute("select what from said order by at")]
    database.execute("truncate said")
    return said


def versions(database: Database) -> dict[int, int]:
    """Rows by ``v``."""
    return dict(database.execute("select v, count(*) from t group by v"))


@pytest.fixture
def table(topics: TopicWriter) -> TableSchema:
    return topics.table("t", id="int4", v="int4")


def test_new_rows_go_straight_and_known_ones_by_way_of_staging(
    topics: TopicWriter, database: Database, config: Config, table: TableSchema
) -> None:
    database.execute(f"create table t (id int4 primary key, v int4); {LOG}")
    with running(config, database) as mirror:
        publish(topics, table, 10, rows_of(*range(MANY)))
        mirror.wait_for_cut(11)
        assert ways(database) == ["COPY"]
        publish(topics, table, 20, rows_of(*range(100, 100 + 2 * MANY), v=1))
        mirror.wait_for_cut(21)
        assert ways(database) == ["INSERT", "COPY"]
        assert versions(database) == {0: 100, 1: 2 * MANY}
        publish(topics, table, 30, rows_of(5, 10_000, v=2))
        mirror.wait_for_cut(31)
        assert ways(database) == ["INSERT"], "a few new ones go with those that are staged"
        with topics.kafka_transaction():
            topics.delete(table, {"id": 6}, 40, 1)
            topics.progress(41)
        mirror.wait_for_cut(41)
        publish(topics, table, 50, rows_of(6, v=3))
        mirror.wait_for_cut(51)
        assert ways(database) == ["INSERT"], "its key was there before"
    with running(config, database) as mirror:
        publish(topics, table, 60, rows_of(20_000, v=4))
        mirror.wait_for_cut(61)
    assert ways(database) == ["INSERT"], "the table was not empty when this session began"
    assert versions(database) == {0: 98, 1: 2 * MANY, 2: 2, 3: 1, 4: 1}


@pytest.mark.parametrize(
    "peculiar",
    [
        "create table t (id int4 primary key, v int4); alter table t enable row level security;"
        "create policy open on t using (true)",
        "create table t (id numeric primary key, v int4)",
    ],
)
def test_tables_that_need_staging(
    topics: TopicWriter, database: Database, config: Config, table: TableSchema, peculiar: str
) -> None:
    """COPY is refused where policies are; of ``1.0`` and ``1`` the newer one has to be chosen."""
    if "numeric" in peculiar:
        table = topics.table("t", id="numeric", v="int4")
    database.execute(f"{peculiar}; {LOG}")
    with running(config, database) as mirror:
        publish(topics, table, 10, rows_of(1, 2))
        mirror.wait_for_cut(11)
    assert ways(database) == ["INSERT"]
    assert versions(database) == {0: 2}


def test_a_key_that_somebody_else_put_there(
    topics: TopicWriter, database: Database, config: Config, table: TableSchema
) -> None:
    """The unique index notices, and the row is overwritten as ever."""
    database.execute(f"create table t (id int4 primary key, v int4); {LOG}")
    with running(config, database) as mirror:
        publish(topics, table, 10, rows_of(1))
        mirror.wait_for_cut(11)
        database.execute("insert into t values (77, 1)")
        ways(database)
        publish(topics, table, 20, rows_of(*range(50, 50 + MANY), v=2))
        mirror.wait_for_cut(21)
        publish(topics, table, 30, rows_of(1_000, v=3))
        mirror.wait_for_cut(31)
        assert ways(database) == ["INSERT", "INSERT"]
    assert versions(database) == {0: 1, 2: MANY, 3: 1}
    assert state_of(database, table)[0] == "exact"


def test_the_culprit_among_new_rows_is_named(
    topics: TopicWriter, database: Database, mirror: Mirror, table: TableSchema
) -> None:
    database.execute("create table t (id int4 primary key, v int4 check (v < 1000))")
    good = topics.table("good", id="int4")
    with topics.kafka_transaction():
        for each in table, good:
            topics.define(each)
        for i in range(MANY):
            topics.upsert(table, {"id": i, "v": 1000 if i == 77 else 2}, 10, i)
        topics.upsert(good, {"id": 1}, 10, MANY)
        topics.progress(11)
    mirror.wait_for_cut(11)
    state, reason, key, *_ = state_of(database, table)
    assert (state, key) == ("stopped", '{"id":77}')
    assert "(77, 1000)" in reason
    assert database.execute("select (select count(*) from t), (select count(*) from good)") == [(0, 1)]


def test_rows_that_refer_to_each_other_across_both_ways(
    topics: TopicWriter, database: Database, config: Config, table: TableSchema
) -> None:
    """A known row that refers to a new one: in one statement it may, in two it may not."""
    database.execute("create table t (id int4 primary key, v int4 references t)")
    with running(config, database) as mirror:
        publish(topics, table, 10, rows_of(0))
        mirror.wait_for_cut(11)
        publish(topics, table, 20, [{"id": 0, "v": MANY}, *rows_of(*range(1, MANY + 1))])
        mirror.wait_for_cut(21)
    assert versions(database) == {0: MANY, MANY: 1}


def test_columns_that_the_replica_has_its_own_ways_with(
    topics: TopicWriter, database: Database, mirror: Mirror
) -> None:
    database.execute(
        "create table t (own text default 'mine', v varchar(3), id int4 generated always as identity primary key,"
        f"doubled int4 generated always as (2 * id) stored); {LOG}"
    )
    table = topics.table("t", id="int4", v="varchar(3)", doubled="int4")
    publish(topics, table, 10, [{"id": 7, "v": "a\tb", "doubled": 14}, {"id": 8, "v": None, "doubled": 16}])
    mirror.wait_for_cut(11)
    assert ways(database) == ["COPY"]
    assert database.execute("select * from t order by id") == [("mine", "a\tb", 7, 14), ("mine", None, 8, 16)]


def test_a_column_that_comes_while_the_table_is_fresh(
    topics: TopicWriter, database: Database, mirror: Mirror, table: TableSchema
) -> None:
    publish(topics, table, 10, rows_of(1))
    mirror.wait_for_cut(11)
    database.execute(LOG)
    wider = topics.table("t", id="int4", v="int4", w="text")
    publish(topics, wider, 20, [{"id": 2, "v": 0, "w": "x"}])
    mirror.wait_for_cut(21)
    assert ways(database) == ["COPY"]
    assert database.execute("select * from t order by id") == [(1, 0, None), (2, 0, "x")]


def test_a_table_emptied_while_it_was_rebuilt_keeps_what_comes(
    topics: TopicWriter, database: Database, config: Config, table: TableSchema
) -> None:
    """Rows that were not met on the way are deleted at the end, and only staged ones count as met."""
    with running(config, database) as mirror:
        publish(topics, table, 10, rows_of(1))
        mirror.wait_for_cut(11)
    database.execute(
        "delete from t; create table cdc.seen_t as select id from t;"
        "update cdc.mirrored_table set state = 'rebuilding', seen_table = 'seen_t'"
    )
    publish(topics, table, 20, rows_of(*range(2, MANY)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
    assert versions(database) == {0: MANY - 2}
