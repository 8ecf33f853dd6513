"""SIGKILL at each step of a sink whose replica refuses rows: it holds the source's rows but for those it refuses."""

from __future__ import annotations

import json
import random
import signal
from contextlib import suppress

import pytest

from cdc.lab.stack import RegistryServer
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import FORMS, deploy_in
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.waiting import eventually

_POINTS = (
    "sink.before_apply:2",
    "sink.before_apply:5",
    "sink.before_replica_commit:2",
    "sink.before_replica_commit:5",
    "sink.after_replica_commit:2",
    "sink.after_replica_commit:4",
)
ROWS = 40


def change(database: Database, chance: random.Random, count: int) -> None:
    """Rows become good and bad, get other keys, come and go, one source transaction each."""
    with database.connect() as connection:
        for _ in range(count):
            row, value = chance.randrange(1, ROWS), chance.randrange(-40, 100)
            with suppress(Exception):  # a change of the key to one that is there
                connection.execute(
                    chance.choice(
                        [
                            f"UPDATE orders SET v = {value} WHERE id = {row}",
                            f"UPDATE orders SET id = {chance.randrange(1, ROWS)}, v = {value} WHERE id = {row}",
                            f"DELETE FROM orders WHERE id = {row}",
                            f"INSERT INTO orders VALUES ({row}, {value}) ON CONFLICT DO NOTHING",
                            f"INSERT INTO plain VALUES ({chance.randrange(10**9)}) ON CONFLICT DO NOTHING",
                        ]
                    ).encode()
                )


def assert_excepted(deployment: Deployment) -> None:
    """See that the replica lacks just the rows that it refuses, names them, and has the other table whole."""
    deployment.wait_mirrored()
    source = dict(deployment.source.execute("SELECT * FROM orders"))
    bad = sorted(key for key, value in source.items() if value < 0)
    replica, good = deployment.replica, {key: value for key, value in source.items() if value >= 0}
    assert dict(replica.execute("SELECT * FROM orders")) == good, deployment.sink.tail()
    kept = replica.execute("SELECT key FROM cdc.quarantined_row")
    assert sorted(json.loads(key)["id"] for (key,) in kept) == bad
    states = dict(replica.execute("SELECT replica_table, state FROM cdc.mirrored_table"))
    assert states == {"public.orders": "excepted" if bad else "exact", "public.plain": "exact"}


@pytest.mark.parametrize("point", sampled(_POINTS, (_POINTS[1], _POINTS[3], _POINTS[4])))
def test_sink_killed_at(point: str, database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int); CREATE TABLE plain (id int PRIMARY KEY)")
    database.execute(f"INSERT INTO orders SELECT n, n % 7 - 1 FROM generate_series(1, {ROWS}) n")
    chance = random.Random(7)
    deployment = deploy(sink={"quarantine": {"public.orders": {"budget": 1_000}}})
    deployment.replica.execute("CREATE TABLE orders (id int PRIMARY KEY, v int CHECK (v >= 0))")
    deployment.start_bridge()
    deployment.sink.start(crashpoint=point)
    for _ in range(100):
        if deployment.sink.ended:
            break
        change(database, chance, 10)
        deployment.wait_published()
    assert deployment.sink.wait() == -signal.SIGKILL
    change(database, chance, 25)
    deployment.sink.start()
    change(database, chance, 25)
    assert_excepted(deployment)
    database.execute("UPDATE orders SET v = 0 WHERE v < 0")
    deployment.assert_equal("public.orders", "public.plain")
    assert deployment.replica.execute("SELECT count(*) FROM cdc.quarantined_row") == [(0,)]
    deployment.stop()


def test_a_person_looks_and_has_them_published_again(database: Database, deploy: Deploy) -> None:
    """``cdc status`` and ``cdc quarantine`` tell of them; ``retry`` helps once the replica table is corrected."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int); CREATE TABLE plain (id int PRIMARY KEY)")
    deployment = deploy(sink={"quarantine": {"public.orders": {}}})
    deployment.replica.execute("CREATE TABLE orders (id int PRIMARY KEY, v int CHECK (v >= 0))")
    deployment.start()
    database.execute("INSERT INTO orders VALUES (1, 1), (2, -2), (3, -3)")
    assert_excepted(deployment)
    said = deployment.command("status", code=3)
    assert "table public.orders lacks 2 rows that it refused" in said
    assert "public.orders: excepted" in said
    listed = deployment.command("quarantine", "list")
    assert 'public.orders  {"id":2}  partition' in listed
    assert "the replica refuses it: new row for relation" in listed
    told = json.loads(deployment.command("quarantine", "list", "--json"))
    assert sorted((each["table"], each["key"], each["refused_by"]) for each in told) == [
        ("public.orders", f'{{"id":{n}}}', "replica") for n in (2, 3)
    ]
    assert "is not in quarantine" in deployment.command("quarantine", "retry", "public.orders", "1", code=2)
    assert "is not in quarantine" in deployment.command("quarantine", "show", "public.orders", "1", code=2)
    shown = deployment.command("quarantine", "show", "public.orders", "2").splitlines()
    assert shown[0].startswith('public.orders {"id":2}, refused by the replica since ')
    assert "new row for relation" in shown[2]
    assert shown[3] == "the topic has the row: cdc get public.orders '{\"id\":2}'"
    assert (
        json.loads(deployment.command("quarantine", "show", "public.orders", "2", "--json"))["refused_by"] == "replica"
    )
    assert "3 of" not in deployment.command("quarantine", "retry", "public.orders")
    assert_excepted(deployment)
    deployment.replica.execute("ALTER TABLE orders DROP CONSTRAINT orders_v_check, ADD CHECK (v <> -3)")
    said = deployment.command("quarantine", "retry", "public.orders", "2")
    assert "1 rows that the replica refuses were published again" in said
    query = "SELECT convert_from(key, 'UTF8') FROM cdc.quarantined_row"
    eventually(lambda: deployment.replica.execute(query) == [('{"id":3}',)], 30, deployment.sink.tail)
    deployment.replica.execute("ALTER TABLE orders DROP CONSTRAINT orders_v_check")
    deployment.command("quarantine", "retry", "public.orders")
    eventually(lambda: deployment.replica.execute(query) == [], 30, deployment.sink.tail)
    deployment.assert_equal("public.orders")
    deployment.command("status")
    deployment.stop()


def assert_lacks(deployment: Deployment, key: str) -> None:
    """See that the replica lacks just the row with this key, whose ``v`` is the one that it refuses."""
    deployment.wait_mirrored()
    query = "SELECT * FROM orders ORDER BY id"
    wanted = [row for row in deployment.source.execute(query) if row[1] != -5]
    assert deployment.replica.execute(query) == wanted, deployment.sink.tail()
    assert deployment.replica.execute("SELECT convert_from(key, 'UTF8') FROM cdc.quarantined_row") == [(key,)]


@pytest.mark.parametrize("form", sampled(FORMS, ("avro keys", "debezium in avro")))
def test_deletes_beside_a_bad_row_are_not_lost(
    form: str, database: Database, deploy: Deploy, registry: RegistryServer
) -> None:
    """A batch that is narrowed down is rendered again, in each form."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int); CREATE TABLE plain (id int PRIMARY KEY)")
    database.execute("INSERT INTO orders SELECT n, n FROM generate_series(1, 30) n")
    deployment = deploy_in(form, deploy, registry, sink={"quarantine": {"public.orders": {}}})
    deployment.replica.execute("CREATE TABLE orders (id int PRIMARY KEY, v int CHECK (v <> -5))")
    deployment.start()
    deployment.assert_equal("public.orders")
    database.execute(
        "BEGIN; DELETE FROM orders WHERE id < 9; UPDATE orders SET v = -5 WHERE id = 9;"
        "UPDATE orders SET v = 100 WHERE id = 10; DELETE FROM orders WHERE id > 25; COMMIT"
    )
    assert_lacks(deployment, '{"id":9}')
    database.execute("UPDATE orders SET v = 5 WHERE id = 9")
    deployment.assert_equal("public.orders")
    assert deployment.replica.execute("SELECT count(*) FROM cdc.quarantined_row") == [(0,)]
    deployment.stop()


def test_a_bad_row_after_the_key_of_the_table_changed(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v int NOT NULL)")
    database.execute("INSERT INTO orders SELECT n, n FROM generate_series(1, 30) n")
    deployment = deploy(source={"on_gap": "rebackfill"}, sink={"quarantine": {"public.orders": {}}})
    deployment.replica.execute("CREATE TABLE orders (id int PRIMARY KEY, v int CHECK (v <> -5))")
    deployment.start()
    deployment.assert_equal("public.orders")
    database.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (v)")
    database.execute("UPDATE orders SET id = id + 1000")
    deployment.wait_mirrored()
    database.execute(
        "BEGIN; DELETE FROM orders WHERE v < 9; UPDATE orders SET v = -5 WHERE v = 9;"
        "UPDATE orders SET id = 100 WHERE v = 10; DELETE FROM orders WHERE v > 25; COMMIT"
    )
    assert_lacks(deployment, '{"v":-5}')
    deployment.stop()
