"""An outbox without a table: logical messages are events, beside the rows of their transaction, each once, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from cdc.contract.header import header_position
from tests.integration.bridge.test_outbox import headers, read
from tests.support.deployment import Deploy, Deployment
from tests.support.names import unique
from tests.support.servers import Database
from tests.support.topic_audit import audit
from tests.support.waiting import eventually

ORDERS = "CREATE TABLE orders (id integer PRIMARY KEY, status text)"
EMIT = "SELECT pg_logical_emit_message(true, %s, %s)::text"
Started = Callable[..., tuple[Deployment, str]]


@pytest.fixture
def started(deploy: Deploy, database: Database) -> Started:
    """Starts a bridge that takes messages. Returns it, and the topic of their events."""

    def start(content: str = "json", **source: Any) -> tuple[Deployment, str]:
        database.execute(ORDERS)
        topic = unique("events")
        messages = {"orders": {"topic": topic, "content": content}}
        deployment = deploy(source={"messages": messages} | source, snapshot={"mode": "never"})
        deployment.start_bridge()
        return deployment, topic

    return start


def emit(connection: psycopg.Connection[Any], content: str | bytes, prefix: str = "orders") -> str:
    """Emit a message of the transaction. Returns its position, as the server says it."""
    row = connection.execute(EMIT.encode(), (prefix, content)).fetchone()
    assert row is not None
    return str(row[0])


def content(number: int, **members: Any) -> str:
    """The content of a message, in JSON."""
    return json.dumps({"payload": {"n": number}} | members)


def values(deployment: Deployment, topic: str) -> list[str]:
    return [(each.value() or b"").decode() for each in read(deployment.bootstrap, topic)]


@pytest.mark.pg(14, 15, 16, 17, 18)
def test_events_and_state_of_a_transaction_agree(started: Started) -> None:
    deployment, topic = started()
    with deployment.source.connect() as connection:
        for number in range(1, 21):
            with connection.transaction():
                emit(connection, "of nobody", "other")
                connection.execute("INSERT INTO orders VALUES (%s, 'placed')", (number,))
                trace = {"traceparent": f"00-{number:032x}-1-01"}
                emit(connection, content(number, id=f"e{number}", key=str(number % 3), headers=trace))
                with connection.transaction(force_rollback=True):
                    emit(connection, content(1000 + number))
                connection.execute("UPDATE orders SET status = 'paid' WHERE id = %s", (number,))
        position = emit(connection, content(21))
        with connection.transaction(force_rollback=True):
            emit(connection, content(2000))
    deployment.sink.start()
    deployment.assert_equal("public.orders")

    events = {json.loads(each.value() or b"")["n"]: each for each in read(deployment.bootstrap, topic)}
    assert sorted(events) == list(range(1, 22))
    assert len(read(deployment.bootstrap, topic)) == 21
    rows = {each.key: header_position(each.header).lsn for each in deployment.records("public.orders")}
    for number in range(1, 21):
        event = events[number]
        assert (event.key(), event.value()) == (b"%d" % (number % 3), b'{"n": %d}' % number)
        assert list(headers(event)) == ["cdc", "id", "traceparent"]
        assert headers(event)["id"] == b"e%d" % number
        assert headers(event)["traceparent"] == b"00-%032x-1-01" % number
        at = header_position(headers(event)["cdc"])
        assert (at.lsn, at.seq) == (rows[b'{"id":%d}' % number], 3)  # after another message and a row
    assert events[21].key() is None
    assert headers(events[21])["id"] == position.encode()
    assert audit(deployment.records("public.orders")) == []
    assert [header_position(each.header).seq for each in deployment.records("public.orders")] == [1, 2] * 20


def test_events_are_in_order_by_key_and_those_without_a_key_by_prefix(started: Started) -> None:
    deployment, topic = started("raw")
    deployment.settings["source"]["messages"]["keyed"] = {"topic": f"{topic}-keyed", "content": "json"}
    deployment.write()
    deployment.bridge.stop()
    deployment.start_bridge()
    with deployment.source.connect() as connection:
        for first in range(0, 300, 10):
            with connection.transaction():
                for number in range(first, first + 10):
                    emit(connection, b"%d" % number)
                    emit(connection, content(number, key=number % 7), "keyed")
                emit(connection, b"")
    deployment.wait_published()
    found = values(deployment, topic)
    assert [each for each in found if each] == [str(number) for number in range(300)]
    assert found.count("") == 30
    assert all(each.key() is None for each in read(deployment.bootstrap, topic))
    by_key: dict[bytes, list[int]] = {}
    for each in read(deployment.bootstrap, f"{topic}-keyed"):
        by_key.setdefault(each.key() or b"", []).append(json.loads(each.value() or b"")["n"])
    assert by_key == {b"%d" % key: list(range(key, 300, 7)) for key in range(7)}
    positions = [header_position(headers(each)["cdc"]) for each in read(deployment.bootstrap, topic)]
    assert positions == sorted(set(positions))


def test_a_message_while_a_row_waits_to_be_read_again_keeps_its_order(started: Started) -> None:
    """The row's value is out of line and unchanged, so the stream leaves it out, and everything after it waits."""
    deployment, topic = started("raw")
    long = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"
    with deployment.source.connect() as connection:
        connection.execute(f"INSERT INTO orders VALUES (1, {long})".encode())
        connection.execute("ALTER TABLE orders ADD n integer")
        for number in range(50):
            with connection.transaction():
                emit(connection, f"before {number}")
                connection.execute("UPDATE orders SET n = %s", (number,))
                emit(connection, f"after {number}")
    deployment.sink.start()
    deployment.assert_equal("public.orders")
    found = values(deployment, topic)
    assert found == [f"{what} {number}" for number in range(50) for what in ("before", "after")]


@pytest.mark.pg(16, 18)
def test_messages_of_a_transaction_that_is_sent_while_it_runs(started: Started, database: Database) -> None:
    """While it runs, the server does not say to which savepoint a message belongs: it is sent again when it ends."""
    database.execute(f'ALTER DATABASE "{database.name}" SET logical_decoding_work_mem = "64kB"')
    deployment, topic = started("raw", streaming=True)
    sent = "SELECT coalesce(sum(stream_bytes), 0) FROM pg_stat_replication_slots WHERE slot_name = %s"

    def bytes_sent() -> int:
        return int(database.execute(sent, (deployment.slot(),))[0][0])

    fill = "INSERT INTO orders SELECT i, 'row' || i FROM generate_series({}, {}) i"
    with database.connect(autocommit=False) as running:
        running.execute(fill.format(1, 1500).encode())
        emit(running, "kept 1")
        running.execute(fill.format(1501, 3000).encode())
        with database.connect() as other:
            emit(other, "of another, between blocks")
            other.execute("SELECT pg_logical_emit_message(false, 'orders', 'not an event')")
        eventually(lambda: bytes_sent() > 0, message="a block to be sent")
        running.commit()
    deployment.assert_published("public.orders")
    assert values(deployment, topic) == ["of another, between blocks", "kept 1"]
    assert "it sends them when they end" not in deployment.bridge.said()
    before = bytes_sent()
    with database.connect(autocommit=False) as running:
        running.execute(fill.format(5001, 6500).encode())
        running.execute("SAVEPOINT a")
        emit(running, "rolled back, first of its savepoint")
        running.execute(fill.format(7001, 8500).encode())
        emit(running, "rolled back, after rows")
        eventually(lambda: bytes_sent() > before, message="a block to be sent")
        running.execute("ROLLBACK TO a")
        emit(running, "kept 2")
        running.execute(fill.format(9001, 10500).encode())
        deployment.bridge.wait_said("from here on it sends them when they end")
        running.commit()
    deployment.assert_published("public.orders")
    assert values(deployment, topic) == ["of another, between blocks", "kept 1", "kept 2"]
    assert audit(deployment.records("public.orders")) == []


def test_half_of_a_transaction_is_resumed_with_another_setting(started: Started) -> None:
    """Ordinals of rows must not depend on whether messages are read, nor of which prefixes."""
    deployment, topic = started("raw")
    deployment.bridge.stop()
    with deployment.source.connect() as connection, connection.transaction():
        connection.execute(
            "DO $$ BEGIN FOR i IN 1..80000 LOOP"
            " IF i % 2 = 0 THEN PERFORM pg_logical_emit_message(true, 'orders', i::text); END IF;"
            " PERFORM pg_logical_emit_message(true, 'other', i::text);"
            " INSERT INTO orders VALUES (i, 'n' || i); UPDATE orders SET status = 'u' WHERE id = i - 100;"
            " END LOOP; END $$"
        )
    messages = deployment.settings["source"]["messages"]
    other = messages | {"other": {"topic": f"{topic}-other"}}
    settings: tuple[dict[str, Any], ...] = (messages, {}, other, {})
    beyond, parts = 0, []
    for setting in settings:
        deployment.settings["source"]["messages"] = setting
        deployment.write()
        deployment.start_bridge()
        beyond = deployment.partial_beyond(beyond).seq
        deployment.bridge.kill()
        parts.append(beyond)
    assert parts == sorted(set(parts))
    assert parts[-1] < 159_900
    deployment.settings["source"]["messages"] = messages
    deployment.write()
    deployment.start_bridge()
    deployment.assert_published("public.orders")
    rows = deployment.records("public.orders")
    assert audit(rows) == []
    assert sorted(header_position(each.header).seq for each in rows) == list(range(1, 159_901))
    assert values(deployment, topic) == [str(number) for number in range(2, 80_001, 2)]


def test_without_messages_the_server_is_not_asked_for_them(deploy: Deploy, database: Database) -> None:
    """And with them, one that is not of a transaction is not an event, which is said once."""
    database.execute(ORDERS)
    deployment = deploy()
    deployment.start_bridge()
    query = "SELECT query FROM pg_stat_activity WHERE query LIKE 'START_REPLICATION%%' AND datname = %s"
    asked = database.execute(query, (database.name,))[0][0]
    assert asked.endswith(f"(proto_version '1', publication_names '\"cdc_{deployment.name}\"')")
    topic = unique("events")
    deployment.settings["source"]["messages"] = {"orders": {"topic": topic}}
    deployment.write()
    deployment.bridge.stop()
    deployment.start_bridge()
    assert database.execute(query, (database.name,))[0][0].endswith(", messages 'true')")
    for prefix in ("other", "orders", "orders"):
        database.execute("SELECT pg_logical_emit_message(false, %s, 'outside')", (prefix,))
    database.execute(EMIT, ("orders", "inside"))
    deployment.wait_published()
    assert values(deployment, topic) == ["inside"]
    (said,) = [line for line in deployment.bridge.said().splitlines() if "not transactional" in line]
    assert json.loads(said)["prefix"] == "orders"
    assert "pg_logical_emit_message(true" in json.loads(said)["remedy"]


def test_a_content_of_another_form_stops_the_bridge_until_any_content_will_do(started: Started) -> None:
    deployment, topic = started()
    with deployment.source.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO orders VALUES (1, 'placed')")
        position = emit(connection, "not JSON")
    assert deployment.bridge.wait() != 0
    assert f"message with prefix 'orders' at LSN {position} cannot be an event" in deployment.bridge.tail()
    assert "set source.messages: {orders: {content: raw}}" in deployment.bridge.tail()
    assert deployment.records("public.orders") == []
    deployment.settings["source"]["messages"]["orders"]["content"] = "raw"
    deployment.write()
    deployment.start_bridge()
    deployment.assert_published("public.orders")
    assert values(deployment, topic) == ["not JSON"]


def test_a_content_that_is_too_large_is_named(deploy: Deploy, database: Database) -> None:
    database.execute(ORDERS)
    source = {"messages": {"orders": {"topic": unique("events")}}}
    deployment = deploy(source=source, topics={"max_message_bytes": 1_048_588})
    deployment.start_bridge()
    database.execute("SELECT pg_logical_emit_message(true, 'orders', repeat('x', 1048588))")
    deployment.bridge.wait_said("the event at LSN")
    assert deployment.bridge.wait() != 0
    assert "raise topics.max_message_bytes" in deployment.bridge.tail()


def test_a_topic_of_a_table_is_refused_and_check_and_grants_say_what_is_needed(
    deploy: Deploy, database: Database
) -> None:
    database.execute(ORDERS)
    source = {"messages": {"orders": {"topic": "taken"}}}
    deployment = deploy(source=source, topics={"names": {"public.orders": "taken"}})
    deployment.bridge.start()
    deployment.bridge.wait_said("events cannot go to topic 'taken': it belongs to a table")
    assert deployment.bridge.wait() != 0
    assert "become events of topic taken" in deployment.command("check")
    deployment.settings["source"]["messages"]["orders"]["topic"] = "app.orders"
    deployment.write()
    assert "--topic app.orders\n" in deployment.command("grants", "kafka")


def test_a_slot_that_was_lost_may_have_cost_events(started: Started) -> None:
    deployment, _ = started("raw", on_gap="fail")
    deployment.wait_published()
    deployment.bridge.stop()
    deployment.source.execute("SELECT pg_drop_replication_slot(%s)", (deployment.slot(),))
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.settings["snapshot"]["mode"] = "initial"
    deployment.write()
    deployment.bridge.start()
    deployment.bridge.wait_said("events of messages may be missing")
    deployment.wait_published()
