"""A commit is in the WAL before it is visible: whoever re-reads a row at once must not take it for deleted or whole.

A missing synchronous standby holds commits exactly there, so that the moment lasts as long as the test wants.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from cdc.base.lsn import LSN
from cdc.lab.demo.place import DemoPlace
from cdc.lab.demo.processes import Daemon
from cdc.lab.proof.comparison import describe, difference, pinned, table_rows, topic_rows
from cdc.lab.proof.positions import is_captured
from cdc.lab.proof.topic_side import read_topics, topic_name
from cdc.lab.stack import Kafka
from cdc.lab.stack.embedded import free_port
from tests.support.held_commits import hold_commits
from tests.support.names import unique
from tests.support.servers import OwnStack
from tests.support.waiting import eventually

_KEY_CHANGE = ("UPDATE t SET id = 3 WHERE id = 1",)
_TOAST_THEN_OTHER = ("UPDATE t SET big = repeat('y', 6000) WHERE id = 2", "UPDATE t SET n = 1 WHERE id = 2")


def test_a_reread_waits_until_the_change_it_completes_is_visible(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path
) -> None:
    server = own_stack.postgres()
    name = unique("v_")
    place = DemoPlace(name, server.dsn(), server.dsn(), kafka.bootstrap, tmp_path, free_port(), free_port())
    place.write_config()
    with psycopg.connect(server.dsn(), autocommit=True) as source:
        source.execute("CREATE TABLE t (id int PRIMARY KEY, n int, big text)")
        source.execute("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
        with Daemon("run", place.config, tmp_path / "bridge.log") as bridge:
            eventually(lambda: is_captured(source, name), message=bridge.tail)
            source.execute("INSERT INTO t SELECT i, 0, repeat('x', 5000) FROM generate_series(1, 2) i")
            with hold_commits(server.dsn()) as held:
                for changes in (_KEY_CHANGE, _TOAST_THEN_OTHER):
                    since = _one(source, "SELECT clock_timestamp()")
                    held.start(changes)
                eventually(lambda: _queried_since(source, since), message="the bridge asks the source about the rows")
            end = LSN.parse(_one(source, "SELECT pg_current_wal_insert_lsn()::text"))
            eventually(lambda: LSN.parse(_one(source, _CONFIRMED)) >= end, message=bridge.tail)
        topic = topic_name(name, "public.t")
        copy = read_topics(kafka.bootstrap, [topic])[topic]
        with pinned(server.dsn()) as reader:
            shape = describe(reader, "public.t")
            found = difference("topic", table_rows(reader, shape), topic_rows(copy.live, shape), shape)
    assert found is None, str(found)


_CONFIRMED = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _queried_since(connection: psycopg.Connection[Any], since: Any) -> bool:
    query = (
        "SELECT max(query_start) > %s FROM pg_stat_activity"
        " WHERE application_name LIKE 'cdc %%' AND backend_type = 'client backend'"
    )
    return connection.execute(query, (since,)).fetchone() == (True,)
