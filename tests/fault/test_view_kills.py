"""A view's process, bridge and broker killed under load: no torn transaction is seen, nothing is lost, and no zombie.

``SEED=n make test-fault`` replays the choices of a run; how they meet the load is up to the machine.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.lab.stack import KafkaBroker
from cdc.views.store.lmdb_store import LmdbStore
from tests.support import bank
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.servers import Database, OwnStack
from tests.support.soak import times
from tests.support.view_feed import ViewProcess
from tests.support.view_oracle import assert_equal, in_folder, lsn_of, wait_for_view
from tests.support.view_watcher import WatcherProcess
from tests.support.views import facts_of
from tests.support.waiting import eventually

_KILLS_OF_EACH = times(1, soak=6)
_LONGEST_PAUSE_S = 1.5
_CEILING_BYTES = 350 * 1024 * 1024


def with_view(deployment: Deployment, folder: Path, **view: Any) -> ViewProcess:
    """Of a view in ``folder``/tables."""
    deployment.settings["view"] = {"store": str(folder), **view}
    deployment.write()
    return ViewProcess(deployment.config, deployment.directory / "view.log")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_at_random(own_stack: OwnStack, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: make test-fault SEED={seed}\n")
    rng = random.Random(seed)
    broker, server = own_stack.kafka(), own_stack.postgres()
    source, folder = Database("postgres", server.dsn()), tmp_path / "view" / "tables"
    tables = in_folder(folder)
    bank.create(source)
    writers = [bank.Writer(source, rng.randrange(10**6)) for _ in range(2)]
    with deployed(source, broker.bootstrap, source, tmp_path, kind=CdcProcess) as deployment:
        view = with_view(deployment, folder.parent, index={"public.ledger": ["amount", ["account", "amount"]]})
        deployment.start_bridge()
        view.start()
        watcher = WatcherProcess(folder)
        try:
            for writer in writers:
                writer.start()
            victims: dict[str, Callable[[], None]] = {
                "view": view.restart,
                "view before a commit": lambda: view.restart(crashpoint=f"view.before_commit:{rng.randrange(1, 30)}"),
                "view after a commit": lambda: view.restart(crashpoint=f"view.after_commit:{rng.randrange(1, 30)}"),
                "broker": lambda: _restart_broker(broker),
                "bridge": deployment.bridge.restart,
            }
            order = [victim for victim in victims for _ in range(_KILLS_OF_EACH)]
            rng.shuffle(order)
            sys.stdout.write(f"order of death: {'; '.join(order)}\n")
            for victim in order:
                threading.Event().wait(rng.uniform(0.2, _LONGEST_PAUSE_S))
                if view.ended:  # at its crash point
                    view.wait()
                    view.start()
                before = lsn_of(tables)
                victims[victim]()
                if rng.random() < 0.5:
                    eventually(lambda: view.ended or lsn_of(tables) > before, 60, view.tail)
            if view.ended:
                view.wait()
            else:
                view.kill()
            before = lsn_of(tables)
            view.start()
            eventually(lambda: lsn_of(tables) > before, 120, view.tail)  # under load still
            for writer in writers:
                writer.finish()
            wait_for_view(deployment, view, tables)
            assert_equal(deployment, tables, *bank.TABLES)
            seen = watcher.finish()
            sys.stdout.write(f"{sum(each.committed for each in writers)} transactions, {seen}\n")
            assert seen["faults"] == []
            assert seen["lsns"] > 1
            assert view.stop() == 0
        finally:
            watcher.kill()
            view.kill()


def _restart_broker(broker: KafkaBroker) -> None:
    broker.kill()
    broker.restart()


def test_a_transaction_larger_than_memory(database: Database, deploy: Deploy, tmp_path: Path) -> None:
    """Nobody sees a part of it, and the process stays below a stated ceiling."""
    database.execute("CREATE TABLE big (id bigint PRIMARY KEY, a integer, note text)")
    deployment, folder = deploy(), tmp_path / "view" / "tables"
    tables = in_folder(folder)
    view = with_view(deployment, folder.parent, index={"public.big": ["a"]})
    deployment.start_bridge()
    view.start()
    try:
        database.execute("INSERT INTO big VALUES (0, 0, 'first')")
        wait_for_view(deployment, view, tables)
        counts: set[int] = set()
        database.execute("INSERT INTO big SELECT i, i % 100, repeat(md5(i::text), 8) FROM generate_series(1, 150000) i")
        with closing(LmdbStore(folder, read_only=True)) as store:

            def is_whole() -> bool:
                counts.add(store.read(lambda snapshot: snapshot.count("rows/1/1")))
                return 150_001 in counts

            eventually(is_whole, 120, view.tail, is_momentary=True)
        assert counts == {1, 150_001}
        sys.stdout.write(f"peak RSS {view.peak_rss_bytes() >> 20} MiB\n")
        assert view.peak_rss_bytes() < _CEILING_BYTES
        wait_for_view(deployment, view, tables)
        assert_equal(deployment, tables, "public.big")
    finally:
        view.kill()


def test_a_second_feed_waits_for_the_first_to_end(database: Database, deploy: Deploy, tmp_path: Path) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, v integer)")
    deployment, folder = deploy(), tmp_path / "view" / "tables"
    tables = in_folder(folder)
    view = with_view(deployment, folder.parent)
    second = ViewProcess(deployment.config, tmp_path / "second.log")
    deployment.start_bridge()
    try:
        view.start()
        database.execute("INSERT INTO items VALUES (1, 1)")
        wait_for_view(deployment, view, tables)
        second.start()
        second.wait_said("waiting: another process of this name writes there")
        view.kill()
        database.execute("INSERT INTO items VALUES (2, 2)")
        wait_for_view(deployment, second, tables)
        assert_equal(deployment, tables, "public.items")
    finally:
        view.kill()
        second.kill()


def test_everything_that_happens_to_tables(database: Database, deploy: Deploy, tmp_path: Path) -> None:
    """Composite keys, keys that change, TRUNCATE, columns that come and go, another type, a table that is new."""
    database.execute(
        "CREATE TABLE part (region text, number integer, note text, PRIMARY KEY (region, number));"
        "CREATE TABLE item (id integer PRIMARY KEY, price numeric, at timestamptz, doc jsonb);"
        "INSERT INTO part SELECT r, i, 'x' FROM unnest(ARRAY['eu', 'us', 'é']) r, generate_series(1, 200) i;"
        "INSERT INTO item SELECT i, i * 1.10, '2026-01-01', jsonb_build_object('n', i) FROM generate_series(1, 500) i"
    )
    deployment, folder = deploy(), tmp_path / "view" / "tables"
    tables = in_folder(folder)
    index = {"public.part": ["note"], "public.item": ["price", ["at", "price"]]}
    view = with_view(deployment, folder.parent, index=index)
    deployment.start_bridge()
    view.start()
    steps = (
        "UPDATE part SET number = number + 1000 WHERE region = 'eu'; DELETE FROM part WHERE number % 7 = 0",
        "UPDATE item SET id = id + 10000 WHERE id % 3 = 0; UPDATE part SET region = 'ü' WHERE region = 'us'",
        "TRUNCATE item; INSERT INTO item VALUES (1, 'NaN', NULL, 'null')",
        "ALTER TABLE item ADD COLUMN weight float8; ALTER TABLE item DROP COLUMN doc;"
        "INSERT INTO item VALUES (2, 2, NULL, 0.5), (3, NULL, '2026-02-02', 'Infinity'); UPDATE item SET weight = id",
        "ALTER TABLE part ALTER COLUMN number TYPE bigint; INSERT INTO part VALUES ('eu', 3000000000, 'far')",
        "CREATE TABLE late (k uuid PRIMARY KEY DEFAULT gen_random_uuid(), v text);"
        "INSERT INTO late (v) SELECT 'v' FROM generate_series(1, 50)",
    )
    try:
        for step in steps:
            with psycopg.connect(database.dsn) as connection:
                connection.execute(step.encode())
            wait_for_view(deployment, view, tables)
        deployment.wait_backfilled()
        wait_for_view(deployment, view, tables)

        def are_exact() -> bool:
            with closing(LmdbStore(folder, read_only=True)) as store:
                known = facts_of(store).tables
            return len(known) == 3 and {each.state for each in known.values()} == {"exact"}

        eventually(are_exact, message=view.tail)
        assert_equal(deployment, tables, "public.part", "public.item", "public.late")
    finally:
        view.kill()
