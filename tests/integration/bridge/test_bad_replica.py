"""What is wrong with the replica stops the table that it is about, by name; the others go on, and it catches up."""

from __future__ import annotations

import pytest

from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """Two tables, nothing started."""
    database.execute(
        "CREATE TABLE good (id integer PRIMARY KEY, n integer); CREATE TABLE bad (LIKE good INCLUDING ALL)"
    )
    return deploy()


def insert(shop: Deployment, *numbers: int) -> None:
    for table in ("good", "bad"):
        shop.source.execute(f"INSERT INTO {table} SELECT n, n FROM unnest(%s::int[]) n", [list(numbers)])


def test_a_value_that_the_replica_rejects(shop: Deployment) -> None:
    shop.start()
    insert(shop, 1, 2)
    shop.assert_equal("public.good", "public.bad")
    shop.replica.execute("ALTER TABLE bad ADD CONSTRAINT only_small CHECK (n < 10)")
    insert(shop, 3, 1000, 4)
    shop.assert_equal("public.good")
    shop.sink.wait_said("a record stops its table")
    said = shop.sink.said()
    assert "only_small" in said
    assert 'key {\\"id\\":1000}' in said
    assert f"topic '{shop.topic('public.bad')}' partition " in said
    stopped = shop.replica.execute("SELECT stopped_key FROM cdc.mirrored_table WHERE state = 'stopped'")
    assert stopped == [('{"id":1000}',)]
    insert(shop, 5)
    shop.assert_equal("public.good")
    assert shop.replica.execute("SELECT max(id) FROM bad")[0][0] < 1000
    shop.replica.execute("ALTER TABLE bad DROP CONSTRAINT only_small")
    shop.sink.stop()
    shop.sink.start()
    insert(shop, 6)
    shop.assert_equal("public.good")
    shop.wait_table_equal("public.bad")
    shop.stop()


def test_a_replica_table_with_a_conflicting_type(shop: Deployment) -> None:
    shop.replica.execute("CREATE TABLE bad (id integer PRIMARY KEY, n date)")
    shop.start()
    insert(shop, 1, 2)
    shop.assert_equal("public.good")
    shop.sink.wait_said("table is stopped")
    said = shop.sink.said()
    assert "column 'n' of replica table public.bad has type date" in said
    assert "ALTER TABLE" in said
    shop.replica.execute("ALTER TABLE bad ALTER COLUMN n TYPE integer USING NULL")
    shop.sink.stop()
    shop.sink.start()
    insert(shop, 3)
    shop.wait_table_equal("public.bad")
    shop.assert_equal("public.good", "public.bad")
    shop.stop()


def test_a_replica_table_without_the_key(shop: Deployment) -> None:
    shop.replica.execute("CREATE TABLE bad (id integer, n integer)")
    shop.start()
    insert(shop, 1, 2)
    shop.assert_equal("public.good")
    shop.sink.wait_said('ALTER TABLE \\"public\\".\\"bad\\" ADD UNIQUE (\\"id\\");')
    shop.stop()


def test_a_replica_that_is_not_there(shop: Deployment) -> None:
    right = shop.replica.dsn
    shop.settings["sink"]["dsn"] = right.replace(shop.replica.name, "no_such_replica")
    shop.write()
    shop.start_bridge()
    insert(shop, 1)
    shop.sink.start()
    said = shop.sink.refusal(3)
    assert 'database "no_such_replica" does not exist' in said
    assert "sink.dsn" in said
    shop.settings["sink"]["dsn"] = right
    shop.write()
    shop.sink.start()
    shop.assert_equal("public.good", "public.bad")
    shop.stop()


def test_the_session_to_the_replica_is_lost(shop: Deployment) -> None:
    shop.start()
    insert(shop, 1)
    shop.assert_equal("public.good", "public.bad")
    shop.replica.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
        [shop.replica.name],
    )
    insert(shop, 2)
    shop.assert_equal("public.good", "public.bad")
    eventually(lambda: "trying again" in shop.sink.said(), 10)
    shop.stop()
