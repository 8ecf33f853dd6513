"""A commit is in the WAL, and in the stream, before anyone sees it: longest while a synchronous standby is awaited.

Whatever the bridge looks up in the database must then wait, or it would take a new table for a stranger's and fill
unchanged TOAST from the row before the change.
"""

from __future__ import annotations

from pathlib import Path

from cdc.lab.stack import Kafka
from tests.support.deployment import deployed
from tests.support.held_commits import hold_commits
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
        with hold_commits(source.dsn) as held:
            held.start(
                [
                    "CREATE TABLE new (id integer PRIMARY KEY)",
                    "INSERT INTO new SELECT generate_series(1, 100)",
                    "UPDATE old SET big = repeat('after ', 1000), n = 1",
                    "UPDATE old SET n = 2",
                ]
            )
            sent = (
                "SELECT sent_lsn >= pg_current_wal_flush_lsn()"
                " FROM pg_stat_replication WHERE application_name LIKE 'cdc%'"
            )
            eventually(lambda: source.execute(sent) == [(True,)])
            assert source.execute("SELECT max(n) FROM old") == [(0,)]
        deployment.assert_published("public.old", "public.new")
        assert not any(b"toast=newer" in record.header for record in deployment.records("public.old"))
        deployment.bridge.stop()
