"""Rows that cannot be carried stand aside: the topic is the table without them, and the quarantine has just them."""

from __future__ import annotations

import json
import signal
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from cdc.contract.history import parse_history
from cdc.contract.naming import history_topic, quarantine_topic
from cdc.contract.quarantine import QuarantineEntry
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.definitions import read_entries
from cdc.lab.stack import RegistryServer
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.servers import Database
from tests.support.topic_audit import read_records

ORDERS: Final = "public.orders"
SMALLEST: Final = 1_048_588
"""The least that ``topics.max_message_bytes`` may be."""
LARGE: Final = "repeat('x', 1100000)"
MAKE: Final = """CREATE TABLE orders (id int PRIMARY KEY, note text);
    CREATE TABLE plain (id int PRIMARY KEY)"""


def entries(deployment: Deployment) -> list[QuarantineEntry]:
    return read_entries(BrokerAdmin({"bootstrap.servers": deployment.bootstrap}), quarantine_topic(deployment.name))


def keys(deployment: Deployment) -> list[int]:
    """The ids that are in quarantine."""
    return sorted(json.loads(each.key)["id"] for each in entries(deployment))


def fold(deployment: Deployment) -> dict[int, Any]:
    """The rows that the topic holds, by id."""
    newest = {each.key: each.value for each in deployment.records(ORDERS)}
    return {json.loads(key or b"")["id"]: json.loads(value) for key, value in newest.items() if value is not None}


def assert_aside(deployment: Deployment, *bad: int) -> None:
    """See that the topic holds the table without these rows, and the quarantine these rows, as the progress says."""
    deployment.wait_published()
    assert keys(deployment) == sorted(bad), deployment.bridge.tail()
    rows = deployment.source.execute("SELECT id, note FROM orders")
    assert {id_: row["note"] for id_, row in fold(deployment).items()} == {
        id_: note for id_, note in rows if id_ not in bad
    }
    progress = deployment.progress()
    assert progress is not None
    assert progress.quarantined == (((ORDERS, len(bad)),) if bad else ())


def orders(deploy: Deploy, budget: int = 10, delivery: str = "transactional", **sections: Any) -> Deployment:
    topics = {"partitions": 2, "max_message_bytes": SMALLEST, **sections.pop("topics", {})}
    source = {"quarantine": {ORDERS: {"budget": budget}}, **sections.pop("source", {})}
    deployment = deploy(source=source, topics=topics, **sections)
    deployment.deliver(delivery)
    return deployment


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_what_the_stream_brings(deploy: Deploy, database: Database, delivery: str) -> None:
    """Inserts, updates, deletes, changes of the key, a TRUNCATE and a restart; the other table goes on."""
    database.execute(MAKE)
    deployment = orders(deploy, delivery=delivery)
    deployment.start_bridge()
    deployment.wait_backfilled()
    database.execute(f"INSERT INTO orders VALUES (1, 'a'), (2, {LARGE}), (3, 'c')")
    database.execute("INSERT INTO plain VALUES (1)")
    assert_aside(deployment, 2)
    deployment.assert_published("public.plain")
    (entry,) = entries(deployment)
    assert entry.table == ORDERS
    assert "the topic takes" in entry.reason
    assert [(each.name, each.size, len(each.content)) for each in entry.cells] == [
        ("id", 1, 1),
        ("note", 1100000, 4096),
    ]
    tombstones = [each for each in deployment.records(ORDERS) if each.value is None]
    assert [json.loads(each.key or b"") for each in tombstones if each.header.endswith(b";row=quarantined")] == [
        {"id": 2}
    ]

    database.execute(f"UPDATE orders SET note = {LARGE} WHERE id = 1")  # readers have a value that is not the newest
    assert_aside(deployment, 1, 2)
    database.execute("UPDATE orders SET id = 4 WHERE id = 2")
    assert_aside(deployment, 1, 4)
    database.execute("UPDATE orders SET note = 'good' WHERE id = 1")
    assert_aside(deployment, 4)
    database.execute("DELETE FROM orders WHERE id = 4")
    assert_aside(deployment)
    database.execute(f"INSERT INTO orders VALUES (5, {LARGE}), (6, {LARGE}), (7, 'g')")
    assert_aside(deployment, 5, 6)

    deployment.bridge.signal(signal.SIGKILL)
    deployment.bridge.wait()
    database.execute("UPDATE orders SET note = 'mended' WHERE id = 5")
    deployment.start_bridge()
    assert_aside(deployment, 6)
    database.execute("TRUNCATE orders")
    database.execute(f"INSERT INTO orders VALUES (8, {LARGE})")
    assert_aside(deployment, 8)
    database.execute("UPDATE orders SET note = 'mended'")
    assert_aside(deployment)
    deployment.assert_published(ORDERS, "public.plain")
    deployment.stop()


def test_a_replica_that_lacks_rows_is_not_exact(deploy: Deploy, database: Database) -> None:
    """Nor after the sink starts anew; when the rows are mended it is, and the other table is all the time."""
    database.execute(MAKE)
    deployment = orders(deploy)
    deployment.start()
    deployment.wait_backfilled()

    def states() -> dict[str, str]:
        query = "SELECT replica_table, state FROM cdc.mirrored_table"
        return {table.replace("public.", ""): state for table, state in deployment.replica.execute(query)}

    deployment.wait_mirrored()
    assert states() == {"orders": "exact", "plain": "exact"}
    database.execute(f"INSERT INTO orders VALUES (1, 'a'), (2, {LARGE})")
    for _ in range(2):
        deployment.wait_mirrored()
        assert states() == {"orders": "excepted", "plain": "exact"}
        assert deployment.replica.execute("SELECT id FROM orders") == [(1,)]
        deployment.sink.restart()
        database.execute("INSERT INTO plain SELECT max(id) + 1 FROM (SELECT id FROM plain UNION SELECT 0) p")
    database.execute("UPDATE orders SET note = 'mended' WHERE id = 2")
    deployment.assert_equal(ORDERS, "public.plain")
    assert states() == {"orders": "exact", "plain": "exact"}
    deployment.stop()


def test_a_table_that_is_read(deploy: Deploy, database: Database) -> None:
    """A backfill puts rows aside and takes them back; a sweep takes entries of rows that are gone; so does a repair."""
    database.execute(MAKE)
    database.execute(
        f"INSERT INTO orders SELECT n, CASE WHEN n % 5 = 0 THEN {LARGE} ELSE 'a' END FROM generate_series(1, 10) n"
    )
    deployment = orders(deploy)
    deployment.start_bridge()
    deployment.wait_backfilled(ORDERS)
    assert_aside(deployment, 5, 10)
    deployment.settings["topics"]["max_message_bytes"] = 3 * SMALLEST
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.bridge.stop()
    # Behind the stream's back: the publication lacks the table for a while
    database.execute(f"ALTER PUBLICATION cdc_{deployment.name} SET TABLE plain")
    database.execute("DELETE FROM orders WHERE id = 5")
    database.execute(f"INSERT INTO orders VALUES (11, repeat('x', {4 * SMALLEST}))")
    deployment.start_bridge()
    deployment.bridge.wait_said("backfill needed")
    deployment.wait_backfilled(ORDERS)
    assert_aside(deployment, 11)
    database.execute("UPDATE orders SET note = 'mended' WHERE id = 11")
    assert_aside(deployment)
    deployment.stop()


def test_a_topic_that_begins_anew(deploy: Deploy, database: Database) -> None:
    database.execute(MAKE)
    database.execute(f"INSERT INTO orders VALUES (1, 'a'), (2, {LARGE})")
    deployment = orders(deploy)
    deployment.start_bridge()
    deployment.wait_backfilled(ORDERS)
    assert_aside(deployment, 2)
    database.execute("DROP TABLE orders")
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    database.execute(f"INSERT INTO orders VALUES (1, {LARGE}), (2, 'b')")
    deployment.bridge.wait_said("begins anew")
    deployment.bridge.stop()
    deployment.start_bridge()
    deployment.wait_backfilled(ORDERS)
    assert_aside(deployment, 1)
    deployment.stop()


@pytest.mark.parametrize("is_at_once", [True, False], ids=["in one transaction", "one by one"])
def test_more_than_the_budget(deploy: Deploy, database: Database, *, is_at_once: bool) -> None:
    """The bridge stops, and nothing of the transaction is readable; with a larger budget it goes on."""
    database.execute(MAKE)
    deployment = orders(deploy, budget=2)
    deployment.start_bridge()
    deployment.wait_backfilled()
    if is_at_once:
        database.execute(f"INSERT INTO orders VALUES (1, 'a'), (2, {LARGE}), (3, {LARGE}), (4, {LARGE})")
    else:
        database.execute(f"INSERT INTO orders VALUES (2, {LARGE}), (3, {LARGE})")
        assert_aside(deployment, 2, 3)
        database.execute(f"INSERT INTO orders VALUES (1, 'a'), (4, {LARGE})")
    said = deployment.bridge.refusal(3)
    assert "table public.orders: one more row cannot be carried, and 2 of its keys are in quarantine already" in said
    assert "raise budget of public.orders in source.quarantine, now 2" in said
    assert fold(deployment) == {}
    assert keys(deployment) == ([] if is_at_once else [2, 3])
    deployment.settings["source"]["quarantine"] = {ORDERS: {"budget": 3}}
    deployment.write()
    deployment.start_bridge()
    assert_aside(deployment, 2, 3, 4)
    deployment.settings["source"]["quarantine"] = {}
    deployment.write()
    deployment.bridge.stop()
    deployment.start_bridge()
    database.execute("UPDATE orders SET note = 'mended' WHERE id IN (2, 3)")
    assert_aside(deployment, 4)  # entries end also when no table is named any more
    database.execute(f"INSERT INTO orders VALUES (5, {LARGE})")
    assert "is too large for topic" in deployment.bridge.refusal(3)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("form", ["avro", "debezium in avro"])
def test_what_a_format_refuses(
    deploy: Deploy, database: Database, registry: RegistryServer, form: str, identity: str
) -> None:
    """The old row of the change that mends it cannot be encoded, either, and nobody misses it."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, note timestamptz)")
    database.execute(f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    database.execute("INSERT INTO orders VALUES (1, now()), (2, 'infinity')")
    deployment = deploy_in(form, deploy, registry, source={"quarantine": {ORDERS: {}}})
    deployment.start_bridge()
    deployment.wait_backfilled(ORDERS)
    assert keys(deployment) == [2]
    database.execute("INSERT INTO orders VALUES (3, now()), (4, '-infinity')")
    database.execute("UPDATE orders SET note = 'infinity' WHERE id = 1")
    deployment.wait_published()
    assert keys(deployment) == [1, 2, 4]
    assert "column note" in entries(deployment)[0].reason
    assert {each.cells[1].content for each in entries(deployment)} == {b"infinity", b"-infinity"}
    database.execute("UPDATE orders SET note = now() WHERE id < 3")
    database.execute("DELETE FROM orders WHERE id = 4")
    deployment.assert_published(ORDERS)
    assert keys(deployment) == []
    deployment.stop()


def test_nothing_hidden_is_in_an_entry(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, secret text, mail text, note text)")
    rules = {ORDERS: {"exclude": ["secret"], "mask": {"mail": "last4"}}}
    deployment = orders(deploy, source={"columns": rules}, topics={"history": [ORDERS]})
    database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    deployment.start_bridge()
    deployment.wait_backfilled()
    database.execute("INSERT INTO orders VALUES (1, 'canary', 'canary@mail', 'a')")
    database.execute(f"UPDATE orders SET note = {LARGE}")
    deployment.wait_published()
    (entry,) = entries(deployment)
    assert [(each.name, each.content[:9]) for each in entry.cells] == [
        ("id", b"1"),
        ("mail", b"****mail"),
        ("note", b"xxxxxxxxx"),
    ]
    database.execute("UPDATE orders SET note = 'mended'")
    deployment.wait_published()
    topics = [deployment.topic(ORDERS), quarantine_topic(deployment.name), history_topic(deployment.topic(ORDERS))]
    found = read_records(deployment.bootstrap, topics)
    assert b"canary" not in b"".join(each.value or b"" for each in found)
    events = [parse_history(each.value or b"") for each in found if each.topic == topics[2]]
    assert [(each.op, each.new is None, each.old is None) for each in events] == [
        ("c", False, True),
        ("d", True, False),
        ("u", False, True),
    ]
    deployment.stop()


def test_what_a_person_does_about_it(deploy: Deploy, database: Database) -> None:
    """List, show, retry and drop, with a bridge that runs and with none."""
    database.execute(MAKE)
    database.execute(f"INSERT INTO orders VALUES (1, {LARGE}), (2, {LARGE}), (3, 'c'), (4, {LARGE})")
    deployment = orders(deploy)
    deployment.start_bridge()
    deployment.wait_backfilled()
    listed = deployment.command("quarantine", "list")
    assert [line.split()[:2] for line in listed.splitlines()] == [[ORDERS, f'{{"id":{n}}}'] for n in (1, 2, 4)]
    shown = deployment.command("quarantine", "show", ORDERS, "2")
    assert ": 2\n  note (text): xxxxx" in shown
    assert "… (1,100,000 bytes)" in shown
    (found, *_) = json.loads(deployment.command("quarantine", "list", "--json"))
    assert (found["table"], found["key"], found["columns"][0]["text64"]) == (ORDERS, '{"id":1}', "MQ==")
    said = deployment.command("quarantine", "show", ORDERS, "3", code=2)
    assert 'public.orders {"id":3} is not in quarantine' in said

    said = deployment.command("quarantine", "retry", ORDERS, "1", code=3)
    assert "0 of 1 rows left the quarantine" in said
    assert "1 of the rows still cannot be carried: table public.orders" in said
    assert "topic and source differ until it changes" in deployment.command("quarantine", "drop", ORDERS, "1")
    assert keys(deployment) == [2, 4]
    status = json.loads(deployment.command("status", "--json", code=4))
    assert status["topics"]["quarantined"] == {ORDERS: 2}
    assert "the topic of public.orders is whole except 2" in json.dumps(status["problems"])

    deployment.bridge.stop()
    deployment.settings["topics"]["max_message_bytes"] = 2 * SMALLEST
    deployment.write()
    topic = deployment.topic(ORDERS)
    raised = AlterConfigOpType.SET
    entry = ConfigEntry("max.message.bytes", str(2 * SMALLEST), incremental_operation=raised)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": deployment.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
    assert "2 of 2 rows left the quarantine" in deployment.command("quarantine", "retry", ORDERS)
    assert deployment.command("quarantine", "list") == "nothing is in quarantine\n"
    assert sorted(fold(deployment)) == [2, 3, 4]  # the first one was given up
    deployment.start_bridge()
    database.execute("UPDATE orders SET note = 'again' WHERE id = 1")
    assert_aside(deployment)
    deployment.settings["source"]["quarantine"] = {"public.order": {}}
    deployment.write()
    deployment.bridge.stop()
    deployment.bridge.start()
    deployment.bridge.wait_said("table public.order, which source.quarantine names, is not among")
    deployment.stop()
