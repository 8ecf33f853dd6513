"""A commit is in the WAL, and in the stream, before anyone sees it: longest while a synchronous standby is awaited.

Whatever the bridge looks up in the database must then wait, or it would take a new table for a stranger's and fill
unchanged TOAST from the row before the change.
"""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg

from cdc.stack import Kafka
from tests.support.deployment import deployed
from tests.support.servers import Database, OwnStack
from tests.support.waiting import eventually


def test_lookups_wait_until_the_commit_is_visible(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    source = Database("postgres", own_stack.postgres().dsn())
    source.execute("CREATE TABLE old (id integer PRIMARY KEY, n integer, big text)")
    source.execute("ALTER TABLE old ALTER COLUMN big SET STORAGE EXTERNAL")
    source.execute("INSERT INTO old SELECT i, 0, 'before' FROM generate_series(1, 3) i")
    with deployed(
        source, kafka.bootstrap, source, tmp_path, {"source": {"publication_mode": "all_tables"}}
    ) as deployment:
        deployment.start_bridge()
        set_standby(source, "nobody")

        def work() -> None:  # hangs in its commits, which nobody sees until the standby is no longer asked for
            with source.connect(autocommit=False) as connection:
                connection.execute("CREATE TABLE new (id integer PRIMARY KEY)")
                connection.execute("INSERT INTO new SELECT generate_series(1, 100)")
                connection.execute("UPDATE old SET big = repeat('after ', 1000), n = 1")
                connection.execute("UPDATE old SET n = 2")

        writer = threading.Thread(target=work)
        writer.start()
        waiting = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        eventually(lambda: source.execute(waiting)[0][0])
        sent = (
            "SELECT sent_lsn >= pg_current_wal_flush_lsn() FROM pg_stat_replication WHERE application_name LIKE 'cdc%'"
        )
        eventually(lambda: source.execute(sent) == [(True,)])
        assert source.execute("SELECT max(n) FROM old") == [(0,)]
        set_standby(source, "")
        writer.join(30)
        deployment.assert_published("public.old", "public.new")
        assert not any(b"toast=newer" in record.header for record in deployment.records("public.old"))
        deployment.bridge.stop()


def set_standby(source: Database, name: str) -> None:
    """Which standby a commit waits for."""
    with psycopg.connect(source.dsn, autocommit=True, options="-c synchronous_commit=local") as admin:
        admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'".encode())
        admin.execute("SELECT pg_reload_conf()")
    eventually(lambda: source.execute("SHOW synchronous_standby_names") == [(name,)])
