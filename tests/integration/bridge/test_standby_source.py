"""The source is a standby: nothing is written there, and what is published is right; tables are not read beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc.base.errors import SourceUnavailable
from cdc.bridge.source.connect import connect
from cdc.bridge.source.slot import create_slot
from cdc.lab.stack import Kafka
from tests.support.deployment import deployed
from tests.support.servers import Database, OwnStack
from tests.support.standby import Standby
from tests.support.waiting import eventually

_TABLES = """
CREATE TABLE t (id int PRIMARY KEY, n int, body text); ALTER TABLE t ALTER body SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, 0, repeat('x', 5000) FROM generate_series(1, 5) i;
"""


@contextmanager
def load(primary: Database) -> Iterator[None]:
    """Updates that leave the long column out, so that the bridge has to read it again."""
    over = threading.Event()

    def run() -> None:
        with primary.connect() as conn:
            while not over.is_set():
                conn.execute("UPDATE t SET n = n + 1 WHERE id = (SELECT id FROM t ORDER BY n LIMIT 1)")
                conn.execute("SELECT pg_log_standby_snapshot()")  # or a slot on a standby waits for it
                over.wait(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.pg(16, 18, matrix=False)  # the first that decodes on a standby; 17 comes without pg_basebackup
def test_a_bridge_streams_from_a_standby_and_writes_to_neither_server(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path
) -> None:
    server = own_stack.postgres()
    primary = Database("postgres", server.dsn())
    primary.execute(_TABLES)
    settings: dict[str, dict[str, Any]] = {
        "source": {"publication_mode": "disabled", "tables": ["public.*"]},
        "snapshot": {"mode": "never"},
    }
    with (
        Standby.of(server, {} if server.major == 16 else {"sync_replication_slots": "off"}) as standby,
        deployed(primary, kafka.bootstrap, primary, tmp_path, settings) as deployment,
    ):
        primary.execute(f"CREATE PUBLICATION cdc_{deployment.name} FOR ALL TABLES WITH (publish_via_partition_root)")
        standby.wait_replayed(server)
        deployment.settings["source"]["dsn"] = standby.dsn()
        del deployment.settings["sink"]  # which would write into the source
        deployment.write()
        assert "this is a standby: what changes is published" in deployment.command("check")
        with load(primary):
            deployment.start_bridge()
            primary.execute("CREATE TABLE later (id int PRIMARY KEY); CREATE TABLE gone (id int PRIMARY KEY)")
            primary.execute("INSERT INTO later VALUES (1); INSERT INTO gone VALUES (1)")
            eventually(lambda: deployment.records("public.later", "public.gone"), 30, deployment.bridge.tail)
            primary.execute("DROP TABLE gone")
            deployment.bridge.wait_said("a captured table is gone")
            deployment.bridge.stop()
            primary.execute("INSERT INTO later VALUES (2)")
            deployment.start_bridge()
            eventually(lambda: len({each.key for each in deployment.records("public.t")}) == 5)
        standby.wait_replayed(server)
        deployment.assert_published("public.t", "public.later")
        said = deployment.bridge.log.read_text()
        assert "read-only transaction" not in said
        assert "trying again" not in said
        deployment.bridge.stop()
        slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'"
        assert Database("postgres", standby.dsn()).execute(slots) == [(deployment.slot(),)]
        assert primary.execute(slots) == []


@pytest.mark.pg(18, matrix=False)
def test_a_slot_on_the_standby_of_a_primary_at_rest(own_stack: OwnStack) -> None:
    """It was said to wait for prepared transactions, which nobody had."""
    server = own_stack.postgres()
    with (
        Standby.of(server) as standby,
        connect({"conninfo": standby.dsn()}, application_name="test") as conn,
        Database("postgres", server.dsn()).connect() as primary,
    ):
        with pytest.raises(SourceUnavailable, match="until the primary logs which transactions") as waited:
            create_slot(conn, "on_standby", timeout_s=1)
        over = threading.Event()

        def follow() -> None:
            while not over.wait(0.2):
                primary.execute(waited.value.remedy.removeprefix("on the primary: ").encode())

        following = threading.Thread(target=follow)
        following.start()
        try:
            create_slot(conn, "on_standby", timeout_s=30)
        finally:
            over.set()
            following.join()
