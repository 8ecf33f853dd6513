"""An outbox beside state: events and rows of a source transaction are readable together, each once, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.contract.header import header_position
from cdc.lab.proof.topic_side import open_consumer
from cdc.lab.stack import Kafka
from tests.support.deployment import Deploy, Deployment
from tests.support.names import unique
from tests.support.servers import Database

OUTBOX = (
    "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL,"
    " aggregateid text, type text NOT NULL, payload jsonb, traceparent text);"
    "CREATE TABLE orders (id integer PRIMARY KEY, status text);"
)
"""The table of Debezium's event router, which names the columns so, and a column more."""


def read(bootstrap: str, topic: str) -> list[Message]:
    """The committed records of a topic, partition by partition."""
    consumer = open_consumer(bootstrap)
    found: list[Message] = []
    try:
        for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.consume(1, 10)[0]).error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


def headers(message: Message) -> dict[str, Any]:
    return dict(message.headers() or ())


@pytest.fixture
def started(deploy: Deploy, database: Database) -> Callable[..., tuple[Deployment, str]]:
    """Starts a bridge with an outbox. Returns it, and the prefix of its event topics."""

    def start(outbox: dict[str, Any] | None = None) -> tuple[Deployment, str]:
        database.execute(OUTBOX)
        prefix = f"events-{unique('o')}."
        settings = {"topic": prefix + "{aggregatetype}", "headers": {"eventType": "type", "traceparent": "traceparent"}}
        deployment = deploy(source={"outbox": {"public.outbox": settings | (outbox or {})}})
        deployment.start()
        return deployment, prefix

    return start


def test_events_and_state_of_a_transaction_agree(started: Callable[..., tuple[Deployment, str]]) -> None:
    deployment, prefix = started()
    for number in range(1, 21):
        with deployment.source.connect() as connection, connection.transaction():
            connection.execute("INSERT INTO orders VALUES (%s, 'placed')", (number,))
            row = ("order", str(number % 3), "OrderPlaced", json.dumps({"id": number}), f"00-{number:032x}-1-01")
            connection.execute(
                "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, traceparent)"
                " VALUES (%s, %s, %s, %s, %s)",
                row,
            )
            connection.execute("DELETE FROM outbox")  # as Debezium's users do: only the WAL keeps the event
    deployment.source.execute("INSERT INTO outbox (aggregatetype, type) VALUES ('invoice', 'Keyless')")
    deployment.source.execute("UPDATE outbox SET type = 'changed'; DELETE FROM outbox; TRUNCATE outbox")
    deployment.assert_equal("public.orders")

    events = read(deployment.bootstrap, prefix + "order")
    assert sorted(json.loads(each.value() or b"")["id"] for each in events) == list(range(1, 21))
    assert len({headers(each)["id"] for each in events}) == 20
    rows = {header_position(each.header).lsn: each.key for each in deployment.records("public.orders")}
    for each in events:
        number = json.loads(each.value() or b"")["id"]
        assert each.value() == b'{"id": %d}' % number  # PostgreSQL's text of the jsonb
        assert each.key() == b"%d" % (number % 3)
        assert headers(each)["eventType"] == b"OrderPlaced"
        assert headers(each)["traceparent"] == b"00-%032x-1-01" % number
        position = header_position(headers(each)["cdc"])
        assert rows[position.lsn] == b'{"id":%d}' % number
        assert position.seq == 2
    by_key: dict[bytes, list[int]] = {}
    for each in events:
        by_key.setdefault(each.key() or b"", []).append(json.loads(each.value() or b"")["id"])
    assert all(numbers == sorted(numbers) for numbers in by_key.values())

    (keyless,) = read(deployment.bootstrap, prefix + "invoice")
    assert (keyless.key(), keyless.value()) == (None, None)
    assert "traceparent" not in headers(keyless)
    topics = AdminClient({"bootstrap.servers": deployment.bootstrap}).list_topics(timeout=10).topics
    assert deployment.topic("public.outbox") not in topics
    assert "public.outbox" not in deployment.command("status")


def test_a_bridge_that_is_stopped_sends_each_event_once(started: Callable[..., tuple[Deployment, str]]) -> None:
    deployment, prefix = started({"payload": "type", "key": "id"})
    insert = "INSERT INTO outbox (aggregatetype, type) SELECT 'a', 'n' || i FROM generate_series({}, {}) i"
    deployment.source.execute(insert.format(1, 50))
    deployment.wait_published()
    deployment.bridge.stop()
    deployment.source.execute(insert.format(51, 100))
    deployment.bridge.start()
    deployment.wait_published()
    values = [(each.value() or b"").decode() for each in read(deployment.bootstrap, prefix + "a")]
    assert sorted(values) == sorted(f"n{number}" for number in range(1, 101))


def test_an_event_that_has_no_topic_stops_the_bridge_until_the_configuration_has_one(
    started: Callable[..., tuple[Deployment, str]],
) -> None:
    deployment, prefix = started({"headers": {}})
    deployment.source.execute("INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('not legal', 'k', 't')")
    deployment.bridge.wait_said("cannot be the name of a topic")
    assert deployment.bridge.wait() != 0
    deployment.settings["source"]["outbox"]["public.outbox"]["topic"] = prefix + "fixed"
    deployment.write()
    deployment.bridge.start()
    deployment.wait_published()
    (event,) = read(deployment.bootstrap, prefix + "fixed")
    assert (event.key(), event.value()) == (b"k", None)


@pytest.mark.parametrize(
    ("outbox", "said"),
    [
        ({"payload": "body"}, "outbox table public.outbox has no column 'body'"),
        ({"topic": "compacted"}, "has cleanup.policy=compact, and events want delete"),
        ({"topic": "taken"}, "events cannot go to topic 'taken': it belongs to a table"),
    ],
    ids=["column", "compacted", "taken"],
)
def test_what_cannot_carry_events_is_refused(
    deploy: Deploy, database: Database, kafka: Kafka, outbox: dict[str, Any], said: str
) -> None:
    database.execute(OUTBOX)
    topic = outbox.get("topic")
    names = {"public.orders": topic} if topic == "taken" else {}
    if topic == "compacted":
        outbox = {"topic": unique("compacted")}
        new = NewTopic(outbox["topic"], 1, 1, config={"cleanup.policy": "compact"})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([new])[outbox["topic"]].result(30)
    deployment = deploy(source={"outbox": {"public.outbox": outbox}}, topics={"names": names})
    deployment.bridge.start()
    if topic is None:  # the stream says which columns there are
        deployment.bridge.wait_said("streaming")
        database.execute("INSERT INTO outbox (aggregatetype, type) VALUES ('a', 't')")
    deployment.bridge.wait_said(said)
    assert deployment.bridge.wait() != 0


def test_an_outbox_needs_a_replica_identity_and_check_and_grants_say_what_it_needs(
    deploy: Deploy, database: Database
) -> None:
    database.execute(OUTBOX + "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey")
    deployment = deploy(source={"outbox": {"public.outbox": {"topic": "app.{type}"}}})
    said = deployment.command("check", code=3)
    assert "outbox table public.outbox has no replica identity" in said
    deployment.bridge.start()
    assert deployment.bridge.wait() != 0
    database.execute('ALTER TABLE "public"."outbox" REPLICA IDENTITY FULL;')  # as it says
    assert "outbox public.outbox" in deployment.command("check")
    assert '"public"."outbox"' in deployment.command("grants", "source")
    assert "--topic app. --resource-pattern-type prefixed" in deployment.command("grants", "kafka")


def test_an_outbox_that_is_made_anew_joins_and_what_may_be_missing_is_said(
    started: Callable[..., tuple[Deployment, str]],
) -> None:
    deployment, prefix = started()
    deployment.source.execute("DROP TABLE outbox; DROP TABLE orders")
    deployment.source.execute(OUTBOX)
    deployment.bridge.wait_said("events of an outbox may be missing")
    deployment.wait_published()
    deployment.source.execute("INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('a', 'k', 't')")
    deployment.wait_published()
    assert [each.key() for each in read(deployment.bootstrap, prefix + "a")] == [b"k"]


def test_an_outbox_that_the_publication_left_out_for_a_while_is_a_gap(
    started: Callable[..., tuple[Deployment, str]],
) -> None:
    deployment, _ = started()
    deployment.wait_published()
    deployment.bridge.stop()
    publication = f"cdc_{deployment.name}"
    deployment.source.execute(f"ALTER PUBLICATION {publication} DROP TABLE outbox")
    deployment.source.execute(f"ALTER PUBLICATION {publication} ADD TABLE outbox")
    deployment.bridge.start()
    deployment.bridge.wait_said("did not carry public.outbox for a while")
    assert deployment.bridge.wait() != 0
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.bridge.start()
    deployment.bridge.wait_said("events of an outbox may be missing")
    deployment.wait_published()
    deployment.bridge.stop()
    deployment.source.execute("SELECT pg_drop_replication_slot(%s)", (deployment.slot(),))
    deployment.bridge.start()
    deployment.bridge.wait_said("events of an outbox may be missing")
    deployment.wait_published()
    assert "public.outbox" not in deployment.backfills()


def test_an_event_that_is_too_large_is_named(deploy: Deploy, database: Database) -> None:
    database.execute(OUTBOX)
    source = {"outbox": {"public.outbox": {"topic": unique("events"), "payload": "type"}}}
    deployment = deploy(source=source, topics={"max_message_bytes": 1_048_588})
    deployment.start_bridge()
    database.execute("INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('a', 'k7', repeat('x', 1048588))")
    deployment.bridge.wait_said("the row with key k7 at LSN")
    assert deployment.bridge.wait() != 0
    assert "raise topics.max_message_bytes" in deployment.bridge.tail()


def test_an_outbox_that_does_not_exist_is_refused(deploy: Deploy, database: Database) -> None:
    database.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
    deployment = deploy(source={"outbox": {"public.outbox": {}}})
    deployment.bridge.start()
    assert deployment.bridge.wait() != 0
    assert "outbox table public.outbox does not exist" in deployment.bridge.tail()
