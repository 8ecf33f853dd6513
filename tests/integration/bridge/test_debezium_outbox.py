"""Debezium's outbox event router and the bridge read one outbox, and their events are compared one by one."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.benchmarks.debezium.connect import connect
from tests.integration.bridge.test_outbox import headers, read
from tests.support.deployment import Deploy
from tests.support.names import unique
from tests.support.servers import Database
from tests.support.waiting import eventually

MAKE = """CREATE TABLE purchaseorder (id int PRIMARY KEY, status text);
CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
    type varchar(255) NOT NULL, timestamp timestamp NOT NULL DEFAULT now(), payload jsonb,
    tracingspancontext varchar(256))"""
"""The tables of Debezium's example of an order service."""

Event = tuple[bytes | None, bytes | None, dict[str, Any]]


def place_orders(database: Database, count: int) -> None:
    """As the example's service: an order and its events in one transaction, whose outbox rows are deleted at once."""
    with database.connect() as connection:
        for number in range(count):
            with connection.transaction():
                connection.execute("INSERT INTO purchaseorder VALUES (%s, 'ENTERED')", (number,))
                for kind, type_ in ("Order", "OrderCreated"), ("Customer", "InvoiceCreated"):
                    payload = {"id": number, "total": 59.98 + number, "text": 'é "x"\n', "lines": [None, True, 1e30]}
                    connection.execute(
                        "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)"
                        " VALUES (gen_random_uuid(), %s, %s, %s, %s)",
                        (kind, str(number % 5), type_, json.dumps(payload)),
                    )
                if number % 2:
                    connection.execute("UPDATE outboxevent SET type = 'changed' WHERE aggregateid = '1'")
                connection.execute("DELETE FROM outboxevent")
            if number % 7 == 0:
                with connection.transaction(force_rollback=True):
                    connection.execute(
                        "INSERT INTO outboxevent VALUES (gen_random_uuid(), 'Order', '1', 'RolledBack', now(), '{}')"
                    )


def events(bootstrap: str, topic: str) -> dict[bytes | None, list[Event]]:
    """The events of a topic by key, in their order, without the headers that each of the two adds about itself."""
    found = defaultdict(list)
    for message in read(bootstrap, topic):
        own = {
            name: value
            for name, value in headers(message).items()
            if name != "cdc" and not name.startswith("__debezium.")
        }
        found[message.key()].append((message.key(), message.value(), own))
    return found


@pytest.mark.long
def test_both_write_the_same_events(database: Database, deploy: Deploy, tmp_path: Path) -> None:
    database.execute(MAKE)
    database.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    name, server = unique("dbz"), conninfo_to_dict(database.dsn)
    outbox = {"topic": f"our{name}.{{aggregatetype}}.events", "headers": {"eventType": "type"}}
    deployment = deploy(source={"outbox": {"public.outboxevent": outbox}}, topics={"partitions": 1})
    deployment.start_bridge()
    values = {
        "bootstrap": deployment.bootstrap,
        "name": name,
        "host": server.get("host", "127.0.0.1"),
        "dbport": server.get("port", 5432),
        "user": server.get("user", ""),
        "password": server.get("password", ""),
        "dbname": database.name,
        "slot": name.lower(),
        "publication": "everything",
    }
    with connect(name, "debezium-connector-postgres", ["outbox"], values, tmp_path / name) as running:

        def streams() -> bool:
            running.must_run()
            query = (
                "SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = %s AND confirmed_flush_lsn IS NOT NULL"
            )
            return bool(database.execute(query, [name.lower()]))

        eventually(streams, 60)
        place_orders(database, 60)
        deployment.wait_published()
        for kind in "Order", "Customer":
            ours = events(deployment.bootstrap, f"our{name}.{kind}.events")
            assert sum(map(len, ours.values())) == 60

            def theirs(kind: str = kind) -> dict[bytes | None, list[Event]]:
                running.must_run()
                return events(deployment.bootstrap, f"{name}.{kind}.events")

            eventually(lambda read=theirs: sum(map(len, read().values())) >= 60, 60)  # type: ignore[misc]
            assert ours == theirs()
    deployment.stop()
