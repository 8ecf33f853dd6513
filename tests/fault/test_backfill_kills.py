"""Backfills one after another, beside a load at full speed, while bridge, broker and source are killed at random.

``SEED=n make test-fault`` replays the choices of a run; how they meet the load is up to the machine.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillRequest
from cdc.kafka.publish.requests import write_request
from tests.support import versioned
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.sampling import sampled
from tests.support.servers import Database, OwnStack
from tests.support.soak import times
from tests.support.topic_audit import audit
from tests.support.waiting import eventually

_ROWS = 15_000
_KILLS_OF_EACH = times(1, soak=6)
_LONGEST_PAUSE_S = 1.5
BACKFILL = ("backfill.before_chunk_done:3", "backfill.inside_sweep:2")


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_random_during_backfills(own_stack: OwnStack, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: make test-fault SEED={seed}\n")
    rng = random.Random(seed)
    broker, server, mirror = own_stack.kafka(), own_stack.postgres(), own_stack.postgres()
    source, replica = Database("postgres", server.dsn()), Database("postgres", mirror.dsn())
    versioned.create(source, _ROWS)
    writers = [versioned.Writer(source, rng.randrange(10**6), _ROWS) for _ in range(2)]
    with deployed(source, broker.bootstrap, replica, tmp_path, kind=CdcProcess) as deployment:
        for writer in writers:
            writer.start()
        deployment.start()

        def kill_bridge() -> None:
            deployment.bridge.kill()
            deployment.bridge.start()

        def kill_server(victim: object) -> None:
            victim.kill()  # type: ignore[attr-defined]  # a process of either kind
            victim.restart()  # type: ignore[attr-defined]  # a process of either kind

        victims: dict[str, Callable[[], None]] = {
            "bridge": kill_bridge,
            "broker": lambda: kill_server(broker),
            "source": lambda: kill_server(server),
        }
        order = [victim for victim in victims for _ in range(_KILLS_OF_EACH)]
        rng.shuffle(order)
        sys.stdout.write(f"order of death: {' '.join(order)}\n")
        for victim in order:
            threading.Event().wait(rng.uniform(0, _LONGEST_PAUSE_S))
            victims[victim]()
            if not any(each.is_open for each in deployment.backfills().values()):
                _ask(deployment, sweep=rng.random() < 0.5)
        deployment.wait_backfilled(*versioned.TABLES, timeout_s=120)
        _ask(deployment, sweep=True)  # and once in peace, but for the load
        deployment.wait_backfilled(*versioned.TABLES, timeout_s=120)
        for writer in writers:
            writer.finish()
        deployment.wait_mirrored(timeout_s=120)
        deployment.assert_equal(*versioned.TABLES)
        records = deployment.records(*versioned.TABLES)
        versions = versioned.VersionAudit().add(records)
        sys.stdout.write(
            f"{sum(each.committed for each in writers)} transactions, {versions.records} records,"
            f" {versions.backfilled} of them backfilled\n"
        )
        assert audit(records) == []
        assert versions.faults == []
        assert versions.backfilled > 2 * _ROWS
        deployment.stop()


POINTS = (BACKFILL[0], "bridge.before_kafka_commit:4", "bridge.after_kafka_commit:4")


@pytest.mark.parametrize("crashpoint", sampled(POINTS, POINTS[1:2]))
def test_a_crash_is_resumed_where_it_stood(crashpoint: str, database: Database, deploy: Deploy) -> None:
    versioned.create(database, _ROWS)
    deployment = deploy(snapshot={"parallel": 2})
    deployment.start_bridge(crashpoint=crashpoint)
    assert deployment.bridge.wait() == -signal.SIGKILL
    writer = versioned.Writer(database, 1, _ROWS)
    writer.start()
    deployment.start_bridge()
    deployment.wait_backfilled(*versioned.TABLES)
    writer.finish()
    deployment.assert_published(*versioned.TABLES)
    assert versioned.VersionAudit().add(deployment.records(*versioned.TABLES)).faults == []


def test_a_sweep_is_resumed(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 6000)")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    deployment.bridge.kill()
    database.execute(f"SELECT pg_drop_replication_slot('{deployment.slot()}')")
    database.execute("DELETE FROM t WHERE id % 2 = 0")
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge(crashpoint=BACKFILL[1])
    assert deployment.bridge.wait() == -signal.SIGKILL
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    deployment.assert_published("public.t")
    assert audit(deployment.records("public.t")) == []


def _ask(deployment: Deployment, *, sweep: bool) -> None:
    request = BackfillRequest(uuid.uuid4().hex, "start", sweep=sweep)
    write_request({"bootstrap.servers": deployment.bootstrap}, progress_topic(deployment.name), request)
    eventually(
        lambda: {each.request for each in deployment.backfills().values()} == {request.request},
        message=deployment.bridge.tail,
    )
