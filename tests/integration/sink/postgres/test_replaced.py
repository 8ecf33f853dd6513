"""Another table under the name of a replica table: rows that it lacks are brought back, those it has are trusted."""

from __future__ import annotations

from cdc.base.config import Config
from tests.integration.sink.postgres.conftest import running
from tests.integration.sink.postgres.test_exactness import assert_holds, publish, rows_of, wait_for_state
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter


def test_a_replica_table_that_somebody_made_anew_is_filled_again(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    """It was called exact, with the rows only that came since."""
    table, anew = topics.table("items", id="int4", v="int4"), "create table items (id int4 primary key, v int4)"
    publish(topics, table, 10, rows_of(*range(10)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute(f"drop table items; {anew}")
    publish(topics, table, 20, rows_of(1, v=1))
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
        wait_for_state(database, "items", "exact")
        assert_holds(database, topics, table)
        database.execute(f"drop table items; {anew}")
        publish(topics, table, 30, rows_of(2, v=2))
        told = str(mirror.wait_for_error())
        assert "the replica table was dropped, renamed or recreated under the running sink: public.items" in told
    assert database.execute("select count(*) from items") == [(0,)]
    with running(config, database) as mirror:
        mirror.wait_for_cut(31)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)


def test_a_replica_table_that_was_copied_with_its_rows_goes_on(
    topics: TopicWriter, database: Database, config: Config
) -> None:
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(*range(10)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute(
        "create table copied (like items including all); insert into copied select * from items;"
        "drop table items; alter table copied rename to items"
    )
    publish(topics, table, 20, rows_of(1, v=1))
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
        assert mirror.reports[0].tables[table.topic].state == "exact"
    assert_holds(database, topics, table)
