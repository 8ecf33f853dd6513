"""Somebody's DDL holds a table for hours: commands answer, other tables go on, and it is said who is in the way."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from cdc.base.config import load
from cdc.ops.dashboard.key_facts import key_facts
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually

_TABLES = """
CREATE TABLE held (id int PRIMARY KEY, n int, body text); INSERT INTO held SELECT i, 1 FROM generate_series(1, 10) i;
CREATE TABLE parted (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100); INSERT INTO parted VALUES (1, 'one');
CREATE TABLE free (id int PRIMARY KEY); INSERT INTO free SELECT generate_series(1, 10);
"""
_SECONDS = 30
"""More than any command takes on a busy machine, and less than somebody's patience."""


@contextmanager
def locked(database: Database, statement: str) -> Iterator[int]:
    """The process whose transaction ran this statement, and stays open."""
    with database.connect(autocommit=False, application_name="migration") as holder:
        holder.execute(statement.encode())
        yield holder.info.backend_pid
        holder.rollback()


def cdc(deployment: Deployment, *arguments: str, code: int = 0) -> str:
    """What a command says, within seconds."""
    began = time.monotonic()
    said = deployment.command(*arguments, code=code)
    assert time.monotonic() < began + _SECONDS
    return said


def listed(deployment: Deployment, table: str) -> str:
    """What ``cdc backfill --list`` says of a table."""
    said = cdc(deployment, "backfill", "--list", f"public.{table}")
    lines = [line for line in said.splitlines() if line.startswith(f"public.{table}: ")]
    assert len(lines) == 1, said
    return lines[0]


def is_told_of(deployment: Deployment, table: str) -> bool:
    """Whether the list says who locks it."""
    return f"holds AccessExclusiveLock on public.{table}" in listed(deployment, table)


def test_commands_and_other_tables_beside_a_locked_one(database: Database, deploy: Deploy) -> None:
    database.execute(_TABLES)
    deployment = deploy(http={"bridge_port": None})
    del deployment.settings["sink"]
    deployment.write()
    deployment.start_bridge()
    deployment.wait_backfilled("public.held", "public.parted", "public.free")
    # Empties the tables, and so locks the values beside them, too; the rollback leaves them as they were
    with locked(database, "TRUNCATE held, parted") as pid:
        holds = f"pid {pid} (user postgres, application 'migration', in a transaction since "
        checked = cdc(deployment, "check")
        assert "publication" in checked
        assert "carries 3 tables" in checked
        for table in ("held", "parted"):
            assert f"table public.{table}: is locked, so nobody can tell now whether it holds" in checked
        status = json.loads(cdc(deployment, "status", "--json"))
        assert status["source"]["left_out"] == []
        granted = cdc(deployment, "grants", "source")
        assert "carries these tables" in granted
        assert '"public"."parted_1"' in granted
        assert "public.held: done" in cdc(deployment, "backfill", "--list")
        assert "public.held  " in cdc(deployment, "tables", "list")
        assert "public.free: done, 10 rows" in cdc(deployment, "backfill", "public.free")

        refused = cdc(deployment, "backfill", "public.held", "--where", "n > 0", code=4)
        assert holds in refused
        assert "holds AccessExclusiveLock on public.held" in refused
        assert f"SELECT pg_terminate_backend({pid});" in refused

        row = key_facts(load(deployment.config, {}), "public.held", "1")["source"]
        assert "holds AccessExclusiveLock on public.held" in row["why"], "the dashboard's look at one key"

        cdc(deployment, "backfill", "public.held", "public.parted", "--no-follow")
        for table in ("held", "parted"):
            eventually(partial(is_told_of, deployment, table), 30)
        deployment.bridge.wait_said("a table is locked")
        assert "public.free: done, 10 rows" in cdc(deployment, "backfill", "public.free"), "readers wait for no lock"

        deployment.bridge.stop()
        deployment.start_bridge()
        database.execute("INSERT INTO free VALUES (11)")
        deployment.wait_published()
    deployment.wait_backfilled()
    deployment.assert_published("public.held", "public.parted", "public.free")


def test_a_bridge_that_starts_beside_a_lock_says_who_holds_it(database: Database, deploy: Deploy) -> None:
    """A table that is to be published must be locked once, and nobody but the holder can hurry that."""
    database.execute(_TABLES)
    deployment = deploy()
    with locked(database, "LOCK TABLE held IN ACCESS EXCLUSIVE MODE") as pid:
        deployment.bridge.start()
        deployment.bridge.wait_said("holds AccessExclusiveLock on public.held")
        assert f"SELECT pg_terminate_backend({pid});" in deployment.bridge.said()
        assert not deployment.bridge.ended
    deployment.bridge.wait_said("streaming")
    deployment.wait_backfilled("public.held", "public.parted", "public.free")
    deployment.assert_published("public.held")


def test_tables_join_and_a_bridge_starts_beside_a_locked_table(database: Database, deploy: Deploy) -> None:
    """What a table holds when it joins is read when the transactions of then are over; its changes come at once."""
    database.execute(_TABLES)
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled("public.held", "public.parted", "public.free")

    def wait_streamed(table: str) -> None:
        database.execute(f"INSERT INTO {table} VALUES (2)")
        deployment.wait_published()
        assert deployment.records(f"public.{table}")

    with locked(database, "LOCK TABLE held IN ACCESS EXCLUSIVE MODE"):
        database.execute("CREATE TABLE shut (id int PRIMARY KEY)")
        with locked(database, "LOCK TABLE shut IN ACCESS EXCLUSIVE MODE"):
            database.execute("CREATE TABLE zest (id int PRIMARY KEY); INSERT INTO zest VALUES (1)")
            deployment.bridge.wait_said('"tables": ["public.zest"]')
            wait_streamed("zest")
            assert "holds AccessExclusiveLock on public.shut" in deployment.bridge.said()
            deployment.bridge.stop()
            deployment.start_bridge()
        deployment.bridge.wait_said('"tables": ["public.shut"]')
        wait_streamed("shut")
    deployment.wait_backfilled("public.held", "public.shut", "public.zest")
    deployment.assert_published("public.held", "public.shut", "public.zest")
