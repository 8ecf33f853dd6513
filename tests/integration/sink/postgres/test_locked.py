"""A replica table that somebody's lock keeps rows out of: the other tables go on, and it is told who is in the way."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from cdc.base.config import Config
from cdc.base.errors import ReplicaUnavailable
from cdc.contract.record import TableSchema
from cdc.sink.apply.topics import RebuildOrder
from cdc.sink.dialects import open_replica
from cdc.sink.postgres import locks
from cdc.sink.replica import Blocker
from tests.integration.sink.postgres.conftest import Mirror, plain_config, running
from tests.integration.sink.postgres.test_exactness import _SINK, assert_holds, publish, rows_of, state, wait_for_state
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually

Log = Sequence[Any]

LOCKS = {
    "access exclusive": "lock table items in access exclusive mode",
    "create index": "create index on items (v)",
    "truncate": "truncate items",
    "a column": "alter table items add column mine int4",
    "rows": "select from items for update",
    "an index": "drop index items_v",
    "a partition": "lock table items_1 in exclusive mode",
}
"""By whom rows are kept out, in a transaction that is open."""
PARTITIONED = """
create table items (id int4 primary key, v int4) partition by range (id);
create table items_1 partition of items for values from (1) to (2); create table items_2 partition of items default
"""
REFERRING = """
create table parent (id int4 primary key); insert into parent values (0), (1);
create table items (id int4 primary key, v int4 references parent deferrable initially deferred)
"""
HOLD = ("sink.before_hold", "sink.after_hold", "sink.before_return")
IN_EVERY_RUN = ("access exclusive", "truncate", "rows")


@pytest.fixture
def said() -> Iterator[Log]:
    """What the sink logs, in a thread of this process."""
    with capture_logs() as logs:
        yield logs


@pytest.fixture
def tables(topics: TopicWriter) -> tuple[TableSchema, TableSchema]:
    """Two of them, each with a row."""
    table, other = topics.table("items", id="int4", v="int4"), topics.table("other", id="int4", v="int4")
    publish(topics, table, 8, rows_of(1))
    publish(topics, other, 10, rows_of(1))
    return table, other


@contextmanager
def somebody(database: Database, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    """Another application, whose transaction is open."""
    with database.connect(autocommit=False, application_name="nightly report") as connection:
        for statement in statements:
            connection.execute(statement.encode())
        yield connection


def held_by(database: Database, table: str = "items") -> str:
    query = "select held_by from cdc.mirrored_table where replica_table = %s"
    return database.execute(query, [f"public.{table}"])[0][0] or ""


def status_says(mirror: Mirror) -> tuple[Blocker, ...]:
    return open_replica(mirror.config, application_name="test").status().blockers


def lines(said: Log, event: str) -> list[Any]:
    return [each for each in said if each["event"].startswith(event)]


@pytest.mark.parametrize(
    "lock",
    [each if each in IN_EVERY_RUN else pytest.param(each, marks=pytest.mark.long) for each in LOCKS],
)
def test_the_other_tables_go_on_while_somebody_locks_one(
    topics: TopicWriter, config: Config, database: Database, tables: tuple[TableSchema, TableSchema], lock: str
) -> None:
    """All tables stood still, all were called exact, and nobody said why."""
    table, other = tables
    if lock == "a partition":
        database.execute(PARTITIONED)
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
        database.execute("create index items_v on items (v)")
        assert status_says(mirror) == ()
        with somebody(database, LOCKS[lock]) as locking:
            publish(topics, table, 20, rows_of(1, v=1))
            publish(topics, other, 22, rows_of(1, v=1))
            mirror.wait_for_cut(23)
            assert_holds(database, topics, other)
            assert state(database, "other")[0] == "exact"
            assert state(database, "items")[0] == "catching_up"
            assert "nightly report" in held_by(database)
            (blocker,) = status_says(mirror)
            assert (blocker.table, blocker.is_left_out) == ("public.items", True)
            assert blocker.remedy == f"let it finish, or: SELECT pg_terminate_backend({locking.info.backend_pid});"
            publish(topics, other, 30, rows_of(1, v=2))
            mirror.wait_for_cut(31)
            assert state(database, "items")[0] == "catching_up", "its rows are those of before 20"
            locking.commit() if lock == "truncate" else locking.rollback()
        wait_for_state(database, "items", "exact")
        mirror.wait_for_cut(31)
        assert held_by(database) == ""
        assert status_says(mirror) == ()
        publish(topics, table, 40, rows_of(2, v=4))
        mirror.wait_for_cut(41)
    assert_holds(database, topics, table)
    assert_holds(database, topics, other)


def test_who_is_in_the_way_is_named_within_five_seconds_and_the_metric_rises_and_falls(
    topics: TopicWriter, mirror: Mirror, said: Log, tables: tuple[TableSchema, TableSchema]
) -> None:
    mirror.wait_for_cut(11)
    with somebody(mirror.replica, "select 'a secret'", "lock table items in access exclusive mode") as locking:
        pid = locking.info.backend_pid
        began = time.time()
        publish(topics, tables[0], 20, rows_of(1, v=1))
        (line,) = eventually(lambda: lines(said, "waiting for a lock in the replica"))
        assert time.time() - began < 5
        assert line["table"] == "public.items"
        assert f"pid {pid} (application 'nightly report', user " in line["holder"]
        assert "lock table items in access exclusive mode" in line["holder"]
        assert f"SELECT pg_terminate_backend({pid});" in line["remedy"]
        eventually(lambda: mirror.waits.get("public.items", 0) > 3)
        eventually(lambda: held_by(mirror.replica))
    over = eventually(lambda: lines(said, "the lock in the replica is gone"))
    assert over[0]["waited_s"] >= 3
    assert mirror.waits == {"public.items": 0.0}
    assert "secret" not in str(said)
    wait_for_state(mirror.replica, "items", "exact")


def test_the_remedy_that_is_printed_ends_the_wait(
    topics: TopicWriter, mirror: Mirror, said: Log, tables: tuple[TableSchema, TableSchema]
) -> None:
    """The pid is that of the one at the end of the chain, who waits for nobody."""
    mirror.wait_for_cut(11)
    replica = mirror.replica
    with somebody(replica, "select from items") as reader:
        altering = subprocess.Popen([sys.executable, "-c", _ALTER, replica.dsn])
        try:
            eventually(lambda: replica.execute("select count(*) from pg_locks where not granted") == [(1,)])
            publish(topics, tables[0], 20, rows_of(1, v=1))
            (line,) = eventually(lambda: lines(said, "waiting for a lock in the replica"))
            assert "which waits for pid" in line["holder"]
            assert line["remedy"].endswith(f"SELECT pg_terminate_backend({reader.info.backend_pid});")
            replica.execute(line["remedy"].partition("or: ")[2])
            mirror.wait_for_cut(21)
            wait_for_state(replica, "items", "exact")
        finally:
            reader.close()
            altering.wait()
    assert_holds(replica, topics, tables[0])


_ALTER = """
import psycopg, sys
psycopg.connect(sys.argv[1], autocommit=True).execute("alter table items alter column v set default 0")
"""


@pytest.mark.parametrize("locked", ["cdc.cut", "public.parent"])
def test_a_wait_that_concerns_every_table_says_so(
    topics: TopicWriter,
    config: Config,
    database: Database,
    said: Log,
    tables: tuple[TableSchema, TableSchema],
    locked: str,
) -> None:
    """The sink's own tables are part of every cut, and so are those that deferred foreign keys refer to."""
    database.execute(REFERRING)
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
        with somebody(database, f"lock table {locked} in access exclusive mode") as locking:
            publish(topics, tables[0], 20, rows_of(1, v=1))
            (line,) = eventually(lambda: lines(said, "waiting for a lock in the replica"))
            assert line["table"] == locked
            assert "every table waits" in line["effect"]
            holder = f"pid {locking.info.backend_pid} (application 'nightly report'"
            if locked == "cdc.cut":
                with pytest.raises(ReplicaUnavailable) as told:
                    status_says(mirror)
                assert f"are locked by {holder}" in told.value.message
                assert told.value.remedy == line["remedy"]
            else:
                (blocker,) = status_says(mirror)
                assert (blocker.table, blocker.is_left_out) == (locked, False)
                assert blocker.seconds >= 2
                assert holder in blocker.who
        mirror.wait_for_cut(21)
        assert mirror.error is None
        assert eventually(lambda: lines(said, "the lock in the replica is gone"))
        assert status_says(mirror) == ()
    assert_holds(database, topics, tables[0])


def test_a_prepared_transaction_is_named_and_the_remedy_ends_it(
    topics: TopicWriter, mirror: Mirror, said: Log, tables: tuple[TableSchema, TableSchema]
) -> None:
    """It has no session that one could see: ``cdc status`` said that all is well."""
    mirror.wait_for_cut(11)
    replica = mirror.replica
    with somebody(replica, "lock table items in share mode", "prepare transaction 'forgotten'"):
        pass  # and gone
    publish(topics, tables[0], 20, rows_of(1, v=1))
    (blocker,) = eventually(lambda: [each for each in status_says(mirror) if each.is_left_out])
    assert (blocker.table, blocker.who) == ("public.items", "a prepared transaction")
    (line,) = lines(said, "waiting for a lock in the replica")
    assert line["holder"] == blocker.who
    assert line["remedy"] == blocker.remedy
    query, end, _ = blocker.remedy.partition(";")
    assert end
    assert "ROLLBACK PREPARED" in blocker.remedy
    for gid, _, _ in replica.execute(query):
        replica.execute(f"ROLLBACK PREPARED '{gid}'")
    wait_for_state(replica, "items", "exact")
    assert_holds(replica, topics, tables[0])


def test_a_wait_is_not_over_because_its_statement_was_cancelled(
    topics: TopicWriter,
    mirror: Mirror,
    said: Log,
    tables: tuple[TableSchema, TableSchema],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a moment the sink neither waits for the lock nor has left the table out: that the lock is gone was wrong."""
    looks: list[float] = []
    look = locks.LockWaits.look

    def counted(waits: locks.LockWaits, session: psycopg.Connection[Any]) -> None:
        look(waits, session)
        looks.append(time.monotonic())

    def slow(crashpoint: str) -> None:
        if crashpoint == "sink.before_hold":
            wanted = len(looks) + 3  # the first of them may have begun before
            eventually(lambda: len(looks) >= wanted)

    mirror.wait_for_cut(11)
    monkeypatch.setattr(locks.LockWaits, "look", counted)
    monkeypatch.setattr(locks, "reach", slow)
    with somebody(mirror.replica, "lock table items in share mode"):
        publish(topics, tables[0], 20, rows_of(1, v=1))
        eventually(lambda: held_by(mirror.replica))
        assert len(lines(said, "waiting for a lock in the replica")) == 1
        assert not lines(said, "the lock in the replica is gone")
        assert mirror.waits["public.items"] > 2
    wait_for_state(mirror.replica, "items", "exact")
    eventually(lambda: lines(said, "the lock in the replica is gone"))


def test_a_long_wait_is_told_again_but_not_all_the_time(
    topics: TopicWriter,
    mirror: Mirror,
    said: Log,
    tables: tuple[TableSchema, TableSchema],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once a minute, with the seconds that grow; here once in two seconds."""
    monkeypatch.setattr(locks, "TELL_AGAIN_S", 2.0)
    mirror.wait_for_cut(11)
    with somebody(mirror.replica, "lock table items in share mode"):
        publish(topics, tables[0], 20, rows_of(1, v=1))
        told = eventually(lambda: found if len(found := lines(said, "waiting for a lock")) >= 3 else None)
        seconds = [each["seconds"] for each in told]
        # Both are rounded to a tenth of a second
        assert all(later - sooner > 1.85 for sooner, later in itertools.pairwise(seconds)), seconds
    eventually(lambda: lines(said, "the lock in the replica is gone"))


def test_many_tables_of_one_transaction_are_left_out_at_once(
    topics: TopicWriter, mirror: Mirror, said: Log, tables: tuple[TableSchema, TableSchema]
) -> None:
    more = [topics.table(f"more_{number}", id="int4", v="int4") for number in range(8)]
    for number, each in enumerate(more):
        publish(topics, each, 12 + 2 * number, rows_of(1))
    mirror.wait_for_cut(27)
    with somebody(mirror.replica, *(f"lock table {each.name} in share mode" for each in more)):
        for number, each in enumerate([*more, tables[1]]):
            publish(topics, each, 100 + 2 * number, rows_of(1, v=1))
        began = time.monotonic()
        mirror.wait_for_cut(117)
        assert time.monotonic() - began < 20
        assert len(lines(said, "a lock in the replica keeps rows out")) == 1
        assert all("nightly report" in held_by(mirror.replica, each.name) for each in more)
    for each in more:
        wait_for_state(mirror.replica, each.name, "exact")
        assert_holds(mirror.replica, topics, each)


class TestReaders:
    def test_a_long_query_keeps_a_new_column_waiting_and_other_readers_go_on(
        self, topics: TopicWriter, mirror: Mirror, said: Log, tables: tuple[TableSchema, TableSchema]
    ) -> None:
        """The sink waited to alter the table, and every new reader of it behind the sink."""
        mirror.wait_for_cut(11)
        wider = topics.table("items", id="int4", v="int4", w="text")
        with somebody(mirror.replica, "select from items"):
            publish(topics, wider, 20, [{"id": 1, "v": 1, "w": "x"}])
            publish(topics, tables[1], 22, rows_of(1, v=1))
            mirror.wait_for_cut(23)
            assert "nightly report" in held_by(mirror.replica)
            mirror.replica.execute("set lock_timeout = '100ms'; select from items")
        wait_for_state(mirror.replica, "items", "exact")
        assert_holds(mirror.replica, topics, wider)

    def test_a_dump_keeps_nothing_out(
        self, topics: TopicWriter, mirror: Mirror, said: Log, tables: tuple[TableSchema, TableSchema]
    ) -> None:
        mirror.wait_for_cut(11)
        with somebody(mirror.replica, "lock table items in access share mode"):
            publish(topics, tables[0], 20, rows_of(1, v=1))
            mirror.wait_for_cut(21)
        assert not lines(said, "waiting for a lock")
        assert not lines(said, "a lock")


def test_a_table_that_is_rebuilt_goes_on_with_that(
    topics: TopicWriter, config: Config, database: Database, tables: tuple[TableSchema, TableSchema]
) -> None:
    """What the operator asked for is not forgotten over a lock."""
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    database.execute("insert into items values (77, 0)")
    with running(config, database, RebuildOrder(["public.items"])) as mirror:
        with somebody(database, "lock table items in access exclusive mode"):
            publish(topics, tables[1], 20, rows_of(1, v=1))
            mirror.wait_for_cut(21)
            assert held_by(database)
        wait_for_state(database, "items", "exact")
        eventually(lambda: database.execute("select count(*) from items") == [(1,)])
    assert_holds(database, topics, tables[0])


def test_another_sink_is_named(
    config: Config, database: Database, said: Log, tables: tuple[TableSchema, TableSchema]
) -> None:
    with running(config, database) as first:
        first.wait_for_cut(11)
        with running(config, database) as second:
            (line,) = eventually(lambda: lines(said, "waiting for a lock in the replica"))
            assert "application 'test'" in line["holder"]
            assert line["effect"] == "this sink waits"
            first.stop.set()
            second.wait_for_cut(11)


@pytest.mark.parametrize("point", HOLD)
def test_killed_while_a_table_leaves_the_cut_and_comes_back(
    topics: TopicWriter, config: Config, database: Database, tables: tuple[TableSchema, TableSchema], point: str
) -> None:
    table, other = tables
    with running(config, database) as mirror:
        mirror.wait_for_cut(11)
    publish(topics, table, 20, rows_of(1, v=1))
    publish(topics, other, 22, rows_of(1, v=1))
    with somebody(database, "lock table items in share mode") as locking:
        told = json.dumps(plain_config(topics, database))
        process = subprocess.Popen([sys.executable, "-c", _SINK, told, point])
        if point == "sink.before_return":
            eventually(lambda: held_by(database))
            locking.rollback()
        assert process.wait() == -signal.SIGKILL
        found = state(database, "items")[0], database.execute("select v from items"), mirror_lsn(database)
        assert found[0] == "catching_up" or found[1:] == ([(0,)], 11), f"called exact, and is not: {found}"
    with running(config, database) as mirror:
        mirror.wait_for_cut(23)
        wait_for_state(database, "items", "exact")
        wait_for_state(database, "other", "exact")
    assert_holds(database, topics, table)
    assert_holds(database, topics, other)


def mirror_lsn(database: Database) -> int:
    lsn: int = database.execute("select (lsn - '0/0')::int8 from cdc.cut")[0][0]
    return lsn
