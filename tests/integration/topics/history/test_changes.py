"""What each kind of change leaves in the history: one running bridge, each test with tables of its own."""

from __future__ import annotations

import signal

from tests.integration.topics.history.reading import assert_history, parsed
from tests.support.deployment import Deployment

BIG = "(SELECT string_agg(md5(({}+i)::text), '') FROM generate_series(1, 300) i)"


def seen(live: Deployment, table: str) -> list[tuple[str, object, object]]:
    """Op, new and old of each record, in the order of the stream."""
    assert_history(live, table)
    return [(each.op, each.new, each.old) for each in parsed(live, table)]


def test_identity_full_keeps_the_whole_old_row(live: Deployment) -> None:
    live.source.execute("CREATE TABLE whole (id integer PRIMARY KEY, n numeric); ")
    live.source.execute("ALTER TABLE whole REPLICA IDENTITY FULL")
    with live.source.connect() as connection, connection.transaction():
        xid = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
        connection.execute("INSERT INTO whole VALUES (1, 1.10)")
        connection.execute("UPDATE whole SET n = NULL")
        connection.execute("UPDATE whole SET id = 2, n = 3")
        connection.execute("DELETE FROM whole")
    first, second, third = {"id": "1", "n": '"1.10"'}, {"id": "1", "n": "null"}, {"id": "2", "n": '"3"'}
    assert seen(live, "public.whole") == [
        ("c", first, None),
        ("u", second, first),
        ("d", None, second),
        ("c", third, second),
        ("d", None, third),
    ]
    records = parsed(live, "public.whole")
    assert [each.position.seq for each in records] == [1, 2, 3, 3, 4]
    assert len({(each.position.lsn, each.ts) for each in records}) == 1
    assert {str(each.xid) for each in records} == set(xid or ())


def test_identity_default_keeps_the_old_key(live: Deployment) -> None:
    live.source.execute("CREATE TABLE keys (id integer PRIMARY KEY, note text)")
    live.source.execute("INSERT INTO keys VALUES (1, 'a')")
    live.source.execute("UPDATE keys SET note = 'b'")
    live.source.execute("UPDATE keys SET id = 2")
    live.source.execute("DELETE FROM keys")
    assert seen(live, "public.keys") == [
        ("c", {"id": "1", "note": '"a"'}, None),
        ("u", {"id": "1", "note": '"b"'}, None),
        ("d", None, {"id": "1"}),
        ("c", {"id": "2", "note": '"b"'}, {"id": "1"}),
        ("d", None, {"id": "2"}),
    ]


def test_truncate_tells_of_every_live_key(live: Deployment) -> None:
    live.source.execute("CREATE TABLE emptied (id integer PRIMARY KEY)")
    live.source.execute("INSERT INTO emptied SELECT i FROM generate_series(1, 4) i")
    live.source.execute("DELETE FROM emptied WHERE id = 3")
    with live.source.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO emptied VALUES (5)")
        connection.execute("TRUNCATE emptied")
        connection.execute("INSERT INTO emptied VALUES (1)")
    found = seen(live, "public.emptied")
    assert found[-5:] == [*[("t", None, None)] * 4, ("c", {"id": "1"}, None)]
    assert sum(op == "t" for op, *_ in found) == 4


def test_long_values_that_did_not_change(live: Deployment) -> None:
    for table in ("long", "long_full"):
        live.source.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, n integer, body text)")
    live.source.execute("ALTER TABLE long_full REPLICA IDENTITY FULL")
    for table in ("long", "long_full"):
        live.source.execute(f"INSERT INTO {table} VALUES (1, 0, {BIG.format(0)})")
        live.wait_published()
        live.bridge.signal(signal.SIGSTOP)  # so that it reads the long value when that is another one already
        live.source.execute(f"UPDATE {table} SET n = 1")
        live.source.execute(f"UPDATE {table} SET body = {BIG.format(7)}")
        live.source.execute(f"UPDATE {table} SET n = 2, id = 2")
        live.source.execute(f"UPDATE {table} SET n = 3")
        live.bridge.signal(signal.SIGCONT)
        assert_history(live, f"public.{table}")
    # Of key 1 the row was gone when its long value was to be read: as the topic, the history leaves that update out.
    records = parsed(live, "public.long")
    assert [(each.op, each.is_newer) for each in records] == [
        ("c", False),
        ("u", False),
        ("d", False),
        ("c", True),
        ("u", False),
    ]
    full = parsed(live, "public.long_full")
    states = [each.new for each in full if each.new]
    assert [(each.op, each.is_newer) for each in full] == [(op, False) for op in "cuudcu"]
    assert [each.old for each in full] == [None, states[0], states[1], states[2], states[2], states[3]]
    assert states[0]["body"] == states[1]["body"] != states[2]["body"] == states[3]["body"] == states[4]["body"]


def test_rolled_back_work_leaves_nothing(live: Deployment) -> None:
    live.source.execute("CREATE TABLE rolled (id integer PRIMARY KEY)")
    with live.source.connect() as connection:
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO rolled VALUES (1)")
        with connection.transaction():
            connection.execute("INSERT INTO rolled VALUES (2)")
            with connection.transaction(force_rollback=True):
                connection.execute("DELETE FROM rolled")
    assert seen(live, "public.rolled") == [("c", {"id": "2"}, None)]
