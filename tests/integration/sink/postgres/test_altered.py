"""Replica tables that somebody altered: none is called exact without the rows that its topic has."""

from __future__ import annotations

import itertools
import re

import psycopg
import pytest

from cdc.base.config import Config
from cdc.base.errors import ReplicaRefused
from cdc.lab.stack import PostgresServer
from cdc.sink.apply.topics import RebuildOrder
from tests.integration.sink.postgres.conftest import running, sink_config
from tests.integration.sink.postgres.test_exactness import assert_holds, publish, rows_of, state, wait_for_state
from tests.support.servers import Database, OwnStack
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


@pytest.fixture
def crashing(own_stack: OwnStack) -> PostgresServer:
    """A server of the test's own."""
    return own_stack.postgres()


def database_of(server: PostgresServer) -> Database:
    return Database("postgres", server.dsn())


def crash(server: PostgresServer) -> None:
    server.kill()
    server.restart()


@pytest.fixture
def config(request: pytest.FixtureRequest, topics: TopicWriter) -> Config:
    """On the test's own server where it has one."""
    own = "crashing" in request.fixturenames
    replica = database_of(request.getfixturevalue("crashing")) if own else request.getfixturevalue("database")
    return sink_config(topics, replica)


def rebuild(table: str) -> RebuildOrder:
    return RebuildOrder([table])


def refusal(database: Database, table: str) -> str:
    """Why the table is stopped, as soon as it is."""

    def reason() -> str:
        if database.execute("select to_regclass('cdc.mirrored_table')") == [(None,)]:
            return ""
        query = "select reason from cdc.mirrored_table where replica_table = %s and state = 'stopped'"
        return next((said for (said,) in database.execute(query, [f"public.{table}"])), "")

    return eventually(reason)


class TestUnlogged:
    def test_a_table_that_a_crash_would_empty_is_stopped_beside_a_running_sink_and_filled_again_when_it_was(
        self, topics: TopicWriter, config: Config, crashing: PostgresServer
    ) -> None:
        """It was called exact at every later position, with the rows only that came since."""
        replica = database_of(crashing)
        table, idle = topics.table("items", id="int4", v="int4"), topics.table("idle", id="int4", v="int4")
        publish(topics, idle, 8, rows_of(*range(5)))
        publish(topics, table, 10, rows_of(*range(10)))
        with running(config, replica) as mirror:
            mirror.wait_for_cut(11)
            replica.execute("alter table items set unlogged; alter table idle set unlogged")
            publish(topics, table, 20, rows_of(1, v=1))
            told = str(mirror.wait_for_error())
            assert "the replica table was altered under the running sink: public.items" in told
        with running(config, replica):
            for each in "items", "idle":
                said = refusal(replica, each)
                assert f"replica table public.{each} is UNLOGGED: a crash of its server empties it" in said
            remedy = re.search(r"ALTER TABLE [^;]*;", refusal(replica, "items"))
        crash(crashing)
        assert replica.execute("select (select count(*) from items), (select count(*) from idle)") == [(0, 0)]
        assert remedy is not None
        replica.execute(f"{remedy[0]} alter table idle set logged")
        with running(config, replica) as mirror:
            mirror.wait_for_cut(21)
            for each in "items", "idle":
                wait_for_state(replica, each, "exact")
        assert_holds(replica, topics, table)
        assert_holds(replica, topics, idle)

    def test_a_table_that_no_row_goes_to_is_noticed_too(
        self, topics: TopicWriter, config: Config, database: Database
    ) -> None:
        table, idle = topics.table("items", id="int4", v="int4"), topics.table("idle", id="int4", v="int4")
        publish(topics, idle, 8, rows_of(1))
        publish(topics, table, 10, rows_of(1))
        with running(config, database) as mirror:
            mirror.wait_for_cut(11)
            database.execute("alter table idle set unlogged")

            lsns = itertools.count(20, 2)

            def told() -> bool:
                publish(topics, table, next(lsns), rows_of(1))
                return mirror.error is not None

            eventually(told)
            assert "altered under the running sink: public.idle" in str(mirror.error)

    def test_a_partition(self, topics: TopicWriter, config: Config, database: Database) -> None:
        database.execute(
            "create table items (id int4 primary key, v int4) partition by hash (id);"
            "create table one partition of items for values with (modulus 1, remainder 0);"
            "alter table one set unlogged"
        )
        table = topics.table("items", id="int4", v="int4")
        publish(topics, table, 10, rows_of(1))
        with running(config, database):
            assert "ALTER TABLE public.one SET LOGGED;" in refusal(database, "items")

    @pytest.mark.parametrize("own", ["cut", "partition_offset", "mirrored_table"])
    def test_tables_of_the_sink_itself(self, topics: TopicWriter, config: Config, database: Database, own: str) -> None:
        table = topics.table("items", id="int4", v="int4")
        publish(topics, table, 10, rows_of(1))
        with running(config, database) as mirror:
            mirror.wait_for_cut(11)
        database.execute(f"alter table cdc.{own} set unlogged")
        with running(config, database) as mirror:
            error = mirror.wait_for_error()
        assert isinstance(error, ReplicaRefused)
        assert f"cdc.{own}" in str(error)
        assert f"ALTER TABLE cdc.{own} SET LOGGED;" in (error.remedy or "")


def test_a_table_that_was_emptied_is_filled_again(topics: TopicWriter, config: Config, database: Database) -> None:
    """Beside a running sink, too; whoever deletes every row of a table in the source has an empty one, as ever."""
    table, empty = topics.table("items", id="int4", v="int4"), topics.table("empty", id="int4", v="int4")
    publish(topics, empty, 8, rows_of(1), gone=rows_of(1))
    publish(topics, table, 10, rows_of(*range(10)))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute("truncate items")
    publish(topics, table, 20, rows_of(1, v=1))
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
        wait_for_state(database, "items", "exact")
        assert_holds(database, topics, table)
        assert not any(each.tables[empty.topic].state == "rebuilding" for each in mirror.reports)
        database.execute("truncate items")
        publish(topics, table, 30, rows_of(2, v=2))
        assert "altered under the running sink: public.items" in str(mirror.wait_for_error())
    with running(config, database) as mirror:
        mirror.wait_for_cut(31)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)


def test_a_column_that_somebody_dropped_is_filled_again(
    topics: TopicWriter, config: Config, database: Database
) -> None:
    """The next start made it anew, NULL in every row, and called the table exact."""
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1, 2, v=7))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute("alter table items drop column v")
    wider = topics.table("items", id="int4", v="int4", w="text")
    publish(topics, wider, 20, [{"id": 2, "v": 8, "w": "x"}])
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
        wait_for_state(database, "items", "exact")
        assert database.execute("select id, v, w from items order by id") == [(1, 7, None), (2, 8, "x")]
    with running(config, database) as mirror:
        publish(topics, topics.table("items", id="int4", v="int4", w="text", u="text"), 30, [])
        mirror.wait_for_cut(31)
        states = {each.tables[table.topic].state for each in mirror.reports}
        assert states == {"exact"}, "what is new in the source is no loss"


def test_what_the_sink_had_recorded_of_a_table_is_gone(topics: TopicWriter, config: Config, database: Database) -> None:
    """Its offsets alone say nothing of rows that a rebuild had still to delete."""
    table = topics.table("items", id="int4", v="int4")
    publish(topics, table, 10, rows_of(1))
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute("delete from cdc.mirrored_table; insert into items values (77, 1)")
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
        wait_for_state(database, "items", "exact")
    assert_holds(database, topics, table)


_KEEPS_OUT = """
    create function keep_out() returns trigger language plpgsql as
    $$ begin if coalesce(new.id, old.id) = 7 then return null; end if; return coalesce(new, old); end $$;
    create trigger keep_out before {event} on items for each row execute function keep_out()
"""


class TestTriggers:
    @pytest.mark.parametrize("event", ["insert", "update", "delete"])
    def test_a_row_that_a_trigger_keeps_out_or_in_stops_its_table(
        self, topics: TopicWriter, config: Config, database: Database, event: str
    ) -> None:
        """The table was exact, and the row was not as in the source."""
        table, good = topics.table("items", id="int4", v="int4"), topics.table("good", id="int4")
        publish(topics, good, 8, [{"id": 1}])
        publish(topics, table, 10, rows_of(*range(300)) if event != "insert" else rows_of(1))
        with running(config, database) as mirror:
            mirror.wait_for_cut(11)
        database.execute(_KEEPS_OUT.format(event=event))
        if event == "delete":
            publish(topics, table, 20, [], gone=rows_of(6, 7, 8))
        else:
            publish(topics, table, 20, rows_of(6, 7, 8, v=1))
        with running(config, database) as mirror:
            mirror.wait_for_cut(21)
        found = database.execute(
            "select state, reason, stopped_key from cdc.mirrored_table where replica_table = 'public.items'"
        )[0]
        assert found[0] == "stopped"
        assert "a trigger" in found[1]
        assert found[2] == '{"id":7}'
        assert state(database, "good")[0] == "exact"

    def test_a_rule_that_keeps_deleted_rows(self, topics: TopicWriter, config: Config, database: Database) -> None:
        table = topics.table("items", id="int4", v="int4")
        publish(topics, table, 10, rows_of(1))
        with running(config, database) as mirror:
            mirror.wait_for_cut(11)
            database.execute("create rule keep as on delete to items do instead nothing")
            publish(topics, table, 20, [], gone=rows_of(1))
            mirror.wait_for_error()
        with running(config, database) as mirror:
            mirror.wait_for_cut(21)
        assert "a trigger or rule of the replica table keeps a deleted row" in refusal(database, "items")

    def test_a_trigger_that_fills_columns_of_ones_own(
        self, topics: TopicWriter, config: Config, database: Database
    ) -> None:
        database.execute(
            "create table items (id int4 primary key, v int4, twice int4);"
            "create function fill() returns trigger language plpgsql as"
            " $$ begin new.twice = 2 * new.v; return new; end $$;"
            "create trigger fill before insert or update on items for each row execute function fill()"
        )
        table = topics.table("items", id="int4", v="int4")
        with running(config, database) as mirror:
            for lsn, ids in (10, range(300)), (20, range(200, 600)):
                publish(topics, table, lsn, rows_of(*ids, v=lsn))
                mirror.wait_for_cut(lsn + 1)
        assert state(database, "items")[0] == "exact"
        assert database.execute("select count(*), sum(twice - 2 * v) from items") == [(600, 0)]


class TestForeignKeys:
    def test_a_key_that_deletes_rows_by_itself_is_refused(
        self, topics: TopicWriter, config: Config, database: Database
    ) -> None:
        """A parent that is deleted and comes back took its children along; they were exact, and gone."""
        parent, child = topics.table("parent", id="int4"), topics.table("child", id="int4", parent="int4")
        publish(topics, parent, 8, [{"id": 1}])
        publish(topics, child, 10, [{"id": 5, "parent": 1}])
        key = "alter table child add foreign key (parent) references parent on delete cascade"
        with running(config, database) as mirror:
            mirror.wait_for_cut(11)
            database.execute(key)
            publish(topics, parent, 20, [], gone=[{"id": 1}])
            publish(topics, parent, 22, [{"id": 1}])
            told = str(mirror.wait_for_error())
            assert "altered under the running sink" in told
        with running(config, database) as mirror:
            mirror.wait_for_cut(23)
        said = refusal(database, "child")
        assert "foreign key child_parent_fkey of replica table public.child changes or deletes its rows" in said
        drop = re.search(r"ALTER TABLE [^;]*;", said)
        assert drop is not None
        database.execute(drop[0])
        with running(config, database, rebuild("public.child")) as mirror:
            wait_for_state(database, "child", "exact")
        assert database.execute("select * from child") == [(5, 1)]

    def test_it_does_no_harm_where_it_is_not_in_force(self, topics: TopicWriter, database: Database) -> None:
        parent, child = topics.table("parent", id="int4"), topics.table("child", id="int4", parent="int4")
        publish(topics, parent, 8, [{"id": 1}])
        publish(topics, child, 10, [{"id": 5, "parent": 1}])
        database.execute(
            "create table parent (id int4 primary key);"
            "create table child (id int4 primary key, parent int4 references parent on delete cascade)"
        )
        replica = psycopg.conninfo.make_conninfo(database.dsn, options="-c session_replication_role=replica")
        with running(sink_config(topics, Database(database.name, replica)), database) as mirror:
            mirror.wait_for_cut(11)
            publish(topics, parent, 20, [], gone=[{"id": 1}])
            mirror.wait_for_cut(21)
        assert state(database, "child")[0] == "exact"
        assert database.execute("select * from child") == [(5, 1)]


class TestFoldedKeys:
    """On a server that knows ICU, as the embedded ones of 16 and 18 do not."""

    COLLATION = "create collation folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"

    @pytest.mark.pg(17, matrix=False)
    def test_keys_that_the_replica_would_take_for_one_are_refused(
        self, topics: TopicWriter, config: Config, database: Database
    ) -> None:
        """Of 'a' and 'A' one row was left, and the table was exact."""
        table = topics.table("items", id="text", v="int4")
        database.execute(f"{self.COLLATION}; create table items (id text collate folded primary key, v int4)")
        publish(topics, table, 10, [{"id": "a", "v": 1}, {"id": "A", "v": 2}])
        with running(config, database):
            said = refusal(database, "items")
        assert "key column 'id' of replica table public.items has the nondeterministic collation folded" in said
        remedy = re.search(r"ALTER TABLE [^;]*;", said)
        assert remedy is not None
        database.execute(remedy[0])
        with running(config, database, rebuild("public.items")) as mirror:
            mirror.wait_for_cut(11)
            wait_for_state(database, "items", "exact")
        assert database.execute("select id, v from items order by v") == [("a", 1), ("A", 2)]

    def test_a_key_that_is_respelled_in_the_source(
        self, topics: TopicWriter, config: Config, database: Database
    ) -> None:
        """There 'a' and 'A' are one key; here they are two, so the order of tombstone and row does not matter."""
        table = topics.table("items", id="text", v="int4")
        with running(config, database) as mirror:
            publish(topics, table, 10, [{"id": "a", "v": 1}])
            mirror.wait_for_cut(11)
            publish(topics, table, 20, [{"id": "A", "v": 2}], gone=[{"id": "a", "v": 0}])
            mirror.wait_for_cut(21)
        assert database.execute("select id, v from items") == [("A", 2)]

    @pytest.mark.pg(17, matrix=False)
    def test_a_column_of_another_collation_that_is_no_key(
        self, topics: TopicWriter, config: Config, database: Database
    ) -> None:
        database.execute(f"{self.COLLATION}; create table items (id text primary key, v text collate folded)")
        publish(topics, topics.table("items", id="text", v="text"), 10, [{"id": "a", "v": "A"}])
        with running(config, database) as mirror:
            mirror.wait_for_cut(11)
        assert state(database, "items")[0] == "exact"
