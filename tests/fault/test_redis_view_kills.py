"""Redis, and the process that fills a view in it, killed under load: rows, index entries and offsets agree afterwards.

``SEED=n make test-fault`` replays the choices of a run; how they meet the load is up to the machine.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.base.config import load
from cdc.lab.stack import RedisServer
from cdc.views.feed.stores import TABLES, ViewStores
from cdc.views.store.port import Store
from tests.support import bank
from tests.support.deployment import Deploy
from tests.support.servers import Database, OwnStack
from tests.support.soak import times
from tests.support.view_feed import ViewProcess
from tests.support.view_oracle import assert_equal, wait_for_view

_KILLS_OF_EACH = times(2, soak=10)
_LONGEST_PAUSE_S = 2.0
_INDEXES = {"public.ledger": ["amount", ["account", "amount"]]}


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("persistent", [pytest.param(True, marks=pytest.mark.long), False], ids=["kept", "forgotten"])
def test_killed_at_random(
    database: Database, deploy: Deploy, own_stack: OwnStack, tmp_path: Path, persistent: bool
) -> None:
    """With a file, Redis goes on; without one, the view is filled anew, as often as it takes."""
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: make test-fault SEED={seed}\n")
    rng = random.Random(seed)
    redis = own_stack.redis(persistent=persistent)
    bank.create(database)
    writers = [bank.Writer(database, rng.randrange(10**6)) for _ in range(2)]
    deployment = deploy(view={"store": redis.url, "index": _INDEXES})
    view, stores = ViewProcess(deployment.config, tmp_path / "view.log"), ViewStores(load(deployment.config, {}))

    def open_store() -> Store:
        return stores.open(TABLES, read_only=True)

    deployment.start_bridge()
    view.start()
    try:
        for writer in writers:
            writer.start()
        victims: dict[str, Callable[[], None]] = {
            "redis": lambda: _restart_redis(redis),
            "view": view.restart,
            "view before a commit": lambda: view.restart(crashpoint=f"view.before_commit:{rng.randrange(1, 30)}"),
            "view after a commit": lambda: view.restart(crashpoint=f"view.after_commit:{rng.randrange(1, 30)}"),
        }
        order = [victim for victim in victims for _ in range(_KILLS_OF_EACH)]
        rng.shuffle(order)
        sys.stdout.write(f"order of death: {'; '.join(order)}\n")
        for victim in order:
            threading.Event().wait(rng.uniform(0.2, _LONGEST_PAUSE_S))
            if view.ended:  # at its crash point
                view.wait()
                view.start()
            victims[victim]()
        for writer in writers:
            writer.finish()
        if view.ended:
            view.wait()
        else:
            view.kill()
        view.start()
        wait_for_view(deployment, view, open_store)
        assert_equal(deployment, open_store, *bank.TABLES)
        assert view.stop() == 0
    finally:
        view.kill()


def _restart_redis(redis: RedisServer) -> None:
    redis.kill()
    redis.restart()
