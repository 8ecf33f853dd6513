"""``source.streaming`` on real servers that send what they can as early as they can: the topics are as without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from cdc.base.lsn import LSN
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.topic_audit import audit
from tests.support.waiting import eventually

TABLES = ("public.items", "public.parcels")
ROWS_CHANGED = 90_000
LONG = "(SELECT string_agg(md5((i * {0})::text), '') FROM generate_series(1, 200) i)"


def new_deployment(deploy: Deploy, database: Database, snapshot: str = "never") -> Deployment:
    """Its walsender sends a transaction as soon as that has 64 kB."""
    database.execute(f'ALTER DATABASE "{database.name}" SET logical_decoding_work_mem = "64kB"')
    for table in TABLES:
        database.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, note text, long text)")
    return deploy(source={"streaming": True}, snapshot={"mode": snapshot})


def streamed(database: Database) -> tuple[int, int]:
    """Streamed transactions and their bytes, as the server counts them."""
    query = (
        "SELECT stream_txns, stream_bytes FROM pg_stat_replication_slots s JOIN pg_replication_slots USING (slot_name)"
    )
    found: tuple[int, int] = database.execute(f"{query} WHERE database = current_database()")[0]
    return found


@contextmanager
def sent(database: Database) -> Iterator[None]:
    """Leave only when some of what the block wrote was sent; its transaction is still open."""
    before = streamed(database)[1]
    yield
    eventually(lambda: streamed(database)[1] > before, message="a block to be sent")


def fill(connection: psycopg.Connection[Any], table: str, first: int, last: int, note: str = "row ") -> None:
    query = f"INSERT INTO {table} (id, note) SELECT n, '{note}' || n FROM generate_series({first}, {last}) n"
    connection.execute(query.encode())


@pytest.mark.parametrize("pg_major", [16, 18])
def test_everything_that_a_transaction_may_do(database: Database, deploy: Deploy) -> None:
    """Two at once, nested savepoints rolled back after they were sent, DDL, TRUNCATE, values left out; one undone."""
    deployment = new_deployment(deploy, database, snapshot="initial")
    database.execute(f"INSERT INTO items SELECT -n, 'old', {LONG.format('n')} FROM generate_series(1, 20) n")
    deployment.start_bridge()
    with ExitStack() as stack:
        one, two, undone = (stack.enter_context(database.connect(autocommit=False)) for _ in range(3))
        with sent(database):
            fill(one, "items", 1, 1500)
        with sent(database):
            fill(two, "parcels", 1, 1500)
        with sent(database):
            fill(undone, "items", 50_000, 51_500)
        database.execute("INSERT INTO parcels VALUES (9001, 'small, between blocks')")
        undone.rollback()
        one.execute("SAVEPOINT outside")
        with sent(database):
            fill(one, "parcels", 10_001, 11_500, "a table that only a rolled back savepoint has touched so far ")
        one.execute("SAVEPOINT inside")
        one.execute("ALTER TABLE items ADD COLUMN never text")
        with sent(database):
            one.execute("UPDATE items SET never = 'never' WHERE id > 0")
        one.execute("RELEASE inside")
        one.execute("DELETE FROM items WHERE id % 2 = 0 AND id > 0")
        one.execute("ROLLBACK TO outside")
        with sent(database):
            fill(two, "parcels", 20_001, 21_500)
        with sent(database):
            fill(one, "parcels", 10_001, 11_500, "kept ")
        one.execute("ALTER TABLE items ADD COLUMN extra integer")
        with sent(database):
            one.execute("UPDATE items SET extra = id")  # the long values of the old rows are left out
        two.execute("DELETE FROM parcels WHERE id % 3 = 0 AND id < 1500")
        one.commit()
        two.commit()
        with sent(database):
            fill(one, "items", 60_001, 61_500, "before the TRUNCATE ")
        one.execute("TRUNCATE parcels")
        with sent(database):
            fill(one, "parcels", 1, 1500, "after it ")
        one.commit()
    deployment.assert_published(*TABLES)
    assert streamed(database)[0] >= 4
    for table in TABLES:
        assert audit(deployment.records(table)) == []
    assert not [each for each in deployment.records(*TABLES) if b"never" in (each.value or b"")]


def test_killed_while_it_is_played_back(database: Database, deploy: Deploy) -> None:
    """Each new start finds another part of it published, and the rest comes, whether it is streamed again or not."""
    deployment = new_deployment(deploy, database)
    deployment.start_bridge()
    deployment.bridge.stop()
    with database.connect() as connection, connection.transaction():
        fill(connection, "items", 1, 40_000)
        with connection.transaction(force_rollback=True):
            fill(connection, "items", 200_001, 205_000)
        with connection.transaction():
            fill(connection, "parcels", 1, 40_000)
        connection.execute("UPDATE items SET id = -id WHERE id <= 10000")
    published = 0
    for streaming in (True, False, True):
        deployment.settings["source"]["streaming"] = streaming
        deployment.write()
        deployment.start_bridge()
        published = deployment.partial_beyond(published).seq
        deployment.bridge.kill()
    assert published < ROWS_CHANGED
    deployment.start_bridge()
    deployment.assert_published(*TABLES)
    for table in TABLES:
        assert audit(deployment.records(table)) == []
    assert streamed(database)[0] >= 2


def test_a_running_transaction_neither_holds_the_slot_back_nor_gets_lost(database: Database, deploy: Deploy) -> None:
    """The position passes its first blocks; after a kill, and after a lost connection, they are all sent again."""
    deployment = new_deployment(deploy, database)
    deployment.start_bridge()
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()"
    with database.connect(autocommit=False) as running:
        with sent(database):
            fill(running, "items", 1, 1500)
        database.execute("INSERT INTO parcels VALUES (1, 'small')")
        passed = deployment.wait_published()
        eventually(lambda: LSN.parse(database.execute(confirmed)[0][0]) >= passed)
        assert deployment.records("public.items") == []
        deployment.bridge.kill()
        with sent(database):
            deployment.start_bridge()
            fill(running, "items", 1501, 3000)
        with sent(database):
            database.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()"
            )
            fill(running, "items", 3001, 4500)
        running.commit()
    deployment.assert_published(*TABLES)
    assert len(deployment.records("public.items")) == 4500
