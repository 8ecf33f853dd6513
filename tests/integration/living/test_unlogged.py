"""Rows that are written while a table is unlogged: no WAL holds them, and the stream never brings them."""

from __future__ import annotations

import signal

import pytest

from cdc.bridge.backfill.intake import NOT_CAPTURED
from tests.integration.living.conftest import Living
from tests.support.deployment import Deployment
from tests.support.waiting import eventually

SETUP = """
CREATE TABLE steady (id integer PRIMARY KEY, n integer);
INSERT INTO steady SELECT i, i FROM generate_series(1, 100) i;
CREATE TABLE busy (LIKE steady INCLUDING ALL);
INSERT INTO busy SELECT * FROM steady;
CREATE TABLE parted (id integer PRIMARY KEY, n integer) PARTITION BY RANGE (id);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (1) TO (100);
CREATE TABLE parted_high PARTITION OF parted FOR VALUES FROM (100) TO (1000);
INSERT INTO parted SELECT i, i FROM generate_series(1, 200) i;
"""


@pytest.fixture(scope="module")
def live(living: Living) -> Deployment:
    """PostgreSQL refuses to unlog a table that a publication names, and not one that is published with all others."""
    return living(SETUP, {"publication_mode": "all_tables"})


def look(live: Deployment, words: str) -> None:
    """Have the bridge look at the tables now; it does every ten seconds by itself."""
    live.bridge.signal(signal.SIGHUP)
    live.bridge.wait_said(words)


@pytest.mark.parametrize("then", ["", "INSERT INTO {} VALUES (0, 0)"])
def test_a_table_is_filled_before_it_is_logged(live: Deployment, then: str) -> None:
    """The usual way to load a table fast."""
    name = "loaded_then_changed" if then else "loaded"
    live.source.execute(f"CREATE UNLOGGED TABLE {name} (id integer PRIMARY KEY, n integer)")
    live.source.execute(f"INSERT INTO {name} SELECT i, i FROM generate_series(1, 1000) i")
    live.source.execute(f"ALTER TABLE {name} SET LOGGED")
    live.source.execute(then.format(name) or "SELECT")
    live.bridge.signal(signal.SIGHUP)
    live.wait_equal(f"public.{name}")


@pytest.mark.parametrize("name", ["steady", "busy"])
def test_a_table_is_unlogged_for_a_while(live: Deployment, name: str) -> None:
    live.wait_backfilled(f"public.{name}")
    live.source.execute(f"ALTER TABLE {name} SET UNLOGGED")
    look(live, f'"tables": ["public.{name}"]')
    eventually(lambda: live.backfills()[f"public.{name}"].reason == NOT_CAPTURED, 30, live.bridge.tail)
    live.source.execute(
        f"DELETE FROM {name} WHERE id % 2 = 0; UPDATE {name} SET n = 0; INSERT INTO {name} VALUES (101)"
    )
    live.source.execute(f"ALTER TABLE {name} SET LOGGED")
    if name == "busy":
        live.source.execute(f"INSERT INTO {name} VALUES (102)")
    live.bridge.signal(signal.SIGHUP)
    live.wait_equal(f"public.{name}")


def test_a_partition_is_unlogged_for_a_while(live: Deployment) -> None:
    live.wait_backfilled("public.parted")
    live.source.execute("ALTER TABLE parted_low SET UNLOGGED")
    live.source.execute("DELETE FROM parted WHERE id % 2 = 0; UPDATE parted SET n = 0")
    look(live, "parted_low")
    live.source.execute("ALTER TABLE parted_low SET LOGGED")
    live.bridge.signal(signal.SIGHUP)
    live.wait_equal("public.parted")
