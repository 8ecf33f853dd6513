"""SIGKILL at each step of the bridge beside an outbox or messages: each event once, in order, and as the state says."""

from __future__ import annotations

import json
import signal
from collections import defaultdict

import pytest

from cdc.contract.header import header_position
from tests.integration.bridge.test_outbox import OUTBOX, headers, read
from tests.support.deployment import Deploy
from tests.support.names import unique
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.topic_audit import audit

POINTS = (
    "bridge.before_kafka_commit:1",
    "bridge.before_kafka_commit:2",
    "bridge.before_kafka_commit:3",
    "bridge.after_kafka_commit:2",
    "bridge.after_kafka_commit:3",
    "bridge.after_confirm:2",
    "bridge.after_confirm:3",
)
_BIG = 60_000


def load(database: Database) -> None:
    """Small transactions with a row and its event, and one that is larger than a Kafka transaction."""
    emit = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) "
    with database.connect() as connection:
        for number in range(1, 301):
            with connection.transaction():
                connection.execute("INSERT INTO orders VALUES (%s, 'placed')", (number,))
                connection.execute(f"{emit} VALUES ('o', %s, 'placed', %s)".encode(), (str(number % 7), str(number)))
                connection.execute("DELETE FROM outbox")
        with connection.transaction():
            connection.execute(
                f"INSERT INTO orders SELECT i, 'bulk' FROM generate_series(1001, {1000 + _BIG}) i".encode()
            )
            connection.execute(
                f"{emit} SELECT 'o', (i % 7)::text, 'bulk', i::text::jsonb"
                f" FROM generate_series(1001, {1000 + _BIG}) i".encode()
            )


def emit_load(database: Database) -> None:
    """The same with messages and no table; the last transaction has its rows and messages by turns."""
    content = "json_build_object('id', {0}::text, 'key', ({0} % 7)::text, 'payload', {0})::text"
    emit = f"pg_logical_emit_message(true, 'orders', {content})"
    with database.connect() as connection:
        for number in range(1, 301):
            with connection.transaction():
                connection.execute("INSERT INTO orders VALUES (%s, 'placed')", (number,))
                connection.execute(f"SELECT {emit.format(number)}".encode())
                with connection.transaction(force_rollback=True):
                    connection.execute(f"SELECT {emit.format(0)}".encode())
        connection.execute(
            f"DO $$ BEGIN FOR i IN 1001..{1000 + _BIG} LOOP INSERT INTO orders VALUES (i, 'bulk');"
            f" PERFORM {emit.format('i')}; END LOOP; END $$".encode()
        )


@pytest.mark.parametrize("point", sampled(POINTS, (POINTS[1], POINTS[4])))
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", ["outbox", "messages"])
def test_bridge_killed_at(kind: str, point: str, streaming: bool, database: Database, deploy: Deploy) -> None:
    database.execute(OUTBOX)
    topic = f"events-{unique('o')}"
    options = {"outbox": {"public.outbox": {"topic": topic}}}
    if kind == "messages":
        options = {"messages": {"orders": {"topic": topic, "content": "json"}}}
        database.execute("DROP TABLE outbox")
    source = {**options, "streaming": streaming}
    deployment = deploy(source=source, snapshot={"mode": "never"})
    deployment.start_bridge(crashpoint=point)
    (load if kind == "outbox" else emit_load)(database)
    assert deployment.bridge.wait() == -signal.SIGKILL
    deployment.start_bridge()
    deployment.assert_published("public.orders")
    rows = deployment.records("public.orders")
    assert audit(rows) == []

    by_key: defaultdict[bytes, list[int]] = defaultdict(list)
    events = read(deployment.bootstrap, topic)
    for each in events:
        by_key[each.key() or b""].append(int(each.value() or b""))
    numbers = [*range(1, 301), *range(1001, 1001 + _BIG)]
    assert by_key == {b"%d" % key: [each for each in numbers if each % 7 == key] for key in range(7)}
    assert len({headers(each)["id"] for each in events}) == len(numbers)
    of_rows = {json.loads(each.key or b"")["id"]: header_position(each.header).lsn for each in rows}
    assert of_rows == {int(each.value() or b""): header_position(headers(each)["cdc"]).lsn for each in events}
