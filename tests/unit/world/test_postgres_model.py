"""What a test can do to the model of PostgreSQL, and what it says of itself."""

from __future__ import annotations

import psycopg
import pytest

from tests.world.postgres import WorldServer
from tests.world.postgres_sessions import PostgresWorld, WorldConnection
from tests.world.postgres_transaction import WorldTransaction, WouldWait
from tests.world.turns import Alone

CONNINFO = "host=primary user=cdc options='-c lock_timeout=2s'"


@pytest.fixture
def world() -> PostgresWorld:
    turns = Alone()
    made = PostgresWorld(turns)
    server = made.add(WorldServer(turns))
    transaction = server.begin()
    transaction.create_table("items", {"id": "int8", "name": "text"}, ["id"])
    transaction.commit()
    return made


@pytest.fixture
def server(world: PostgresWorld) -> WorldServer:
    return world.servers["primary"]


def inserted(server: WorldServer, key: bytes) -> WorldTransaction:
    """A transaction that has inserted a row and is open."""
    transaction = server.begin()
    transaction.insert("items", {"id": key})
    return transaction


def streaming(world: PostgresWorld, slot: str) -> WorldConnection:
    """A connection that reads from a slot, which is made if need be."""
    conn = world.connect(CONNINFO, autocommit=True)
    server = world.servers["primary"]
    if slot not in server.slots:
        server.make_slot(slot, lambda: False, 1.0)
    conn.pgconn.exec_(f"""START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({ORDINARY})""".encode())
    return conn


ORDINARY = "proto_version '1', publication_names '\"p\"'"


def test_a_query_that_the_model_does_not_know_fails_the_test(world):
    conn = world.connect(CONNINFO, autocommit=True)
    with pytest.raises(AssertionError, match="the world does not know this query: SELECT 1 FROM elsewhere"):
        conn.execute("SELECT 1\n  FROM elsewhere")


def test_what_would_wait_leaves_nothing(server):
    first, second = inserted(server, b"1"), server.begin()
    with pytest.raises(WouldWait):
        second.insert("items", {"id": b"1"})
    with pytest.raises(WouldWait):
        second.truncate("items")
    assert (second.xid, second.changes) == (0, [])
    first.abort()
    second.insert("items", {"id": b"1"})
    second.commit()
    assert server.rows("items") == {(b"1",): {"id": b"1", "name": None}}


def test_the_history_has_the_rows_of_each_commit(server):
    first, second = inserted(server, b"1"), inserted(server, b"2")
    second.commit()
    first.commit()
    change = server.begin()
    change.add_column("items", "extra", "int8", b"7")
    change.delete("items", {"id": b"2"})
    change.commit()
    keys = [None if rows is None else sorted(rows) for _, rows in server.history("items")]
    assert keys == [[], [(b"2",)], [(b"1",), (b"2",)], [(b"1",)]]
    ends = [end for end, _ in server.history("items")]
    assert ends == sorted(ends)
    assert server.rows_at("items", ends[0] - 1) is None
    assert server.rows_at("items", ends[-1]) == {(b"1",): {"id": b"1", "name": None, "extra": b"7"}}


def test_a_commit_is_shown_by_a_step_of_the_server(server):
    transaction = inserted(server, b"1")
    transaction.write_commit(flush=False)
    assert server.flush_lsn < server.insert_lsn
    assert server.rows("items") == {}
    for step in server.steps():
        step()
    assert server.flush_lsn == server.insert_lsn
    assert list(server.rows("items")) == [(b"1",)]
    assert server.steps() == []


def test_sessions_end_with_their_program(world, server):
    conn = streaming(world, "s")
    other = world.connect(CONNINFO, autocommit=True)
    other.execute("BEGIN")
    other.execute("SELECT pg_catalog.pg_logical_emit_message(true, 'cdc', '') WHERE NOT pg_catalog.pg_is_in_recovery()")
    assert server.running
    server.lose("alone", is_noticed=False)
    assert server.slots["s"].reader is not None
    for step in server.steps():
        step()
    assert server.slots["s"].reader is None
    assert not server.running
    with pytest.raises(psycopg.OperationalError):
        other.execute("COMMIT")
    assert other.closed
    with pytest.raises(psycopg.OperationalError):
        conn.pgconn.get_copy_data(1)


def test_nobody_reaches_a_server_that_is_away(world, server):
    conn = world.connect(CONNINFO, autocommit=True)
    transaction = inserted(server, b"1")
    server.go_away()
    with pytest.raises(psycopg.OperationalError, match="Connection refused"):
        world.connect(CONNINFO, autocommit=True)
    with pytest.raises(psycopg.OperationalError):
        conn.execute("BEGIN")
    server.come_back()
    world.connect(CONNINFO, autocommit=True).execute("BEGIN")
    assert transaction.is_over
    assert server.rows("items") == {}


def test_a_silent_reader_is_asked_and_then_thrown_out(world, server):
    streaming(world, "s")
    world.turns.now += 31
    (ask,) = server.steps()
    ask()
    assert server.steps() == []
    world.turns.now += 31
    (end,) = server.steps()
    end()
    assert server.slots["s"].reader is None


def test_what_was_not_replayed_is_lost_by_a_promotion(world, server):
    inserted(server, b"1").commit()
    standby = world.add(server.standby("standby"))
    inserted(server, b"2").commit()
    late = inserted(server, b"3")
    server.go_away()
    standby.promote()
    assert late.is_over
    assert list(standby.rows("items")) == [(b"1",)]
    again = standby.begin()
    again.insert("items", {"id": b"2", "name": b"again"})
    again.commit()
    assert standby.rows("items")[(b"2",)]["name"] == b"again"
    assert list(server.rows("items")) == [(b"1",), (b"2",)]
    assert (standby.timeline, standby.slots) == (2, {})


def test_a_transaction_arrives_in_parts(world, server):
    publishing = server.begin()
    publishing.create_publication("p", ["items"])
    publishing.commit()
    conn = streaming(world, "s")
    transaction = server.begin()
    for key in range(50):
        transaction.insert("items", {"id": b"%d" % key})
    transaction.commit()
    sizes: list[int] = []
    while sum(sizes) < 53:
        world.turns.rng.seed(1 + len(sizes))
        conn.pgconn.consume_input()
        size = 0
        while conn.pgconn.get_copy_data(1)[0]:
            size += 1
        sizes.append(size)
    assert sum(sizes) == 53
    assert len(sizes) > 1
