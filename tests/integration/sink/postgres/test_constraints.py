"""Constraints that the operator put on replica tables, and that are checked when all rows of a cut are there."""

from __future__ import annotations

import re

from cdc.base.config import Config
from tests.integration.sink.postgres.conftest import running
from tests.integration.sink.postgres.test_tables import publish, state_of
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


def test_rows_that_break_a_foreign_key_together_stop_their_table_only(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    """A constraint that is checked at the commit ended the sink, at every start."""
    database.execute(
        "create table parent (id int4 primary key); create table good (id int4 primary key);"
        "create table child (id int4 primary key, of int4 references parent deferrable initially deferred)"
    )
    parent, child = topics.table("parent", id="int4"), topics.table("child", id="int4", of="int4")
    good = topics.table("good", id="int4")
    for number, table in enumerate((parent, child, good)):
        publish(topics, 10 + 2 * number, table, {"id": 1, "of": 1} if table is child else {"id": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(15)
        with topics.kafka_transaction():
            topics.upsert(child, {"id": 2, "of": 7}, 20, 1)
            topics.upsert(good, {"id": 2}, 20, 2)
            topics.upsert(parent, {"id": 2}, 20, 3)
            topics.progress(21)
        mirror.wait_for_cut(21)
        state, reason, *_ = state_of(database, child)
        assert state == "stopped"
        assert "child_of_fkey" in reason
        assert "(7)" in reason
        for table, rows in (child, [(1, 1)]), (parent, [(1,), (2,)]), (good, [(1,), (2,)]):
            assert database.execute(f"select * from {table.name} order by id") == rows
        with topics.kafka_transaction():  # the row that the stopped table still refers to
            topics.delete(parent, {"id": 1}, 30, 1)
            topics.upsert(good, {"id": 3}, 30, 2)
            topics.delete(child, {"id": 1}, 30, 3)
            topics.upsert(parent, {"id": 7}, 30, 4)
            topics.progress(31)
        mirror.wait_for_cut(31)
        assert [state_of(database, each)[0] for each in (parent, child, good)] == ["stopped", "stopped", "exact"]
        assert database.execute("select max(id) from good") == [(3,)]
    with running(config, database) as mirror:
        eventually(lambda: {state_of(database, each)[0] for each in (parent, child, good)} == {"exact"})
    assert database.execute("select * from child") == [(2, 7)]
    assert database.execute("select * from parent order by id") == [(2,), (7,)]


def test_the_constraint_that_the_remedy_adds_beside_a_deferrable_key(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    """ON CONFLICT took both, which the server refuses, and the sink tried again for ever, with all of its tables."""
    database.execute("create table t (id int4 primary key deferrable initially deferred, v text)")
    table, good = topics.table("t", id="int4", v="text"), topics.table("good", id="int4")
    publish(topics, 10, table, {"id": 1, "v": "a"})
    publish(topics, 12, good, {"id": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(13)
    state, reason, *_ = state_of(database, table)
    assert state == "stopped"
    assert "has no primary key or unique constraint on exactly the key columns" in reason
    remedy = re.search(r"ALTER TABLE .*?;", reason)
    assert remedy is not None
    database.execute(remedy[0])
    publish(topics, 14, table, {"id": 1, "v": "b"}, {"id": 2, "v": "b"})
    with running(config, database) as mirror:
        eventually(lambda: {state_of(database, each)[0] for each in (table, good)} == {"exact"})
        publish(topics, 20, table, {"id": 1, "v": "c"})
        mirror.wait_for_cut(21)
    assert database.execute("select * from t order by id") == [(1, "c"), (2, "b")]
    assert '("id") that is not deferrable' in reason


def test_a_table_that_lacks_what_a_publication_of_the_replica_needs_stops_alone(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    """Its SQLSTATE begins as that of a lock that cannot be had: the sink tried again for ever."""
    database.execute("create table t (id int4 not null unique); create publication of_replica for table t")
    table, good = topics.table("t", id="int4"), topics.table("good", id="int4")
    publish(topics, 10, table, {"id": 1})
    publish(topics, 12, good, {"id": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(13)
        with topics.kafka_transaction():
            topics.delete(table, {"id": 1}, 20, 1)
            topics.upsert(good, {"id": 2}, 20, 2)
            topics.progress(21)
        mirror.wait_for_cut(21)
    state, reason, key, *_ = state_of(database, table)
    assert (state, key) == ("stopped", '{"id":1}')
    assert "does not have a replica identity and publishes deletes" in reason
    assert database.execute("select id from good order by id") == [(1,), (2,)]
