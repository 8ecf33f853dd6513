"""Bridge, sink, broker, source and replica killed at random under load: nothing lost, nothing twice, no torn cut.

``SEED=n make test-fault`` replays the choices of a run; how they meet the load is up to the machine.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from cdc.lab.stack import KafkaBroker, PostgresServer, RegistryServer
from tests.support import bank
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import deployed
from tests.support.forms import in_form
from tests.support.sampling import sampled
from tests.support.servers import Database, OwnStack
from tests.support.soak import times
from tests.support.topic_audit import audit
from tests.support.under_load import wait_for_cuts
from tests.support.waiting import eventually

_KILLS_OF_EACH = times(1, soak=6)
_LONGEST_PAUSE_S = 2.5


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("delivery", "form"),
    sampled(
        [
            *product(("transactional", "idempotent"), ("json", "avro", "protobuf", "json-schema", "connect")),
            ("transactional", "debezium"),
            ("transactional", "debezium in avro"),
        ],
        [("transactional", "json"), ("transactional", "protobuf"), ("transactional", "debezium")],
    ),
)
def test_killed_at_random(own_stack: OwnStack, tmp_path: Path, delivery: str, form: str) -> None:
    """With a registry, that dies as well."""
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: make test-fault SEED={seed}\n")
    rng = random.Random(seed)
    broker, servers = own_stack.kafka(), (own_stack.postgres(), own_stack.postgres())
    source, replica = (Database("postgres", server.dsn()) for server in servers)
    registry = None if form in ("json", "debezium", "connect") else own_stack.registry()
    values = {"values": {"documents": "string", "schemas": form}} if form == "connect" else {}
    sections = in_form("json" if values else form, registry, **values)
    bank.create(source)
    watcher, writers = bank.Watcher(replica), [bank.Writer(source, rng.randrange(10**6)) for _ in range(2)]
    with deployed(source, broker.bootstrap, replica, tmp_path, sections, CdcProcess) as deployment:
        deployment.deliver(delivery)
        deployment.start()
        for thread in (watcher, *writers):
            thread.start()
        victims: dict[str, Callable[[], None]] = {
            "bridge": lambda: _restart(deployment.bridge),
            "sink": lambda: _restart(deployment.sink),
            "broker": lambda: _restart_server(broker),
            "source": lambda: _restart_server(servers[0]),
            "replica": lambda: _restart_server(servers[1]),
        }
        if registry is not None:
            victims["registry"] = lambda: _restart_server(registry)
        order = [victim for victim in victims for _ in range(_KILLS_OF_EACH)]
        rng.shuffle(order)
        sys.stdout.write(f"order of death: {' '.join(order)}\n")
        for victim in order:
            threading.Event().wait(rng.uniform(0, _LONGEST_PAUSE_S))
            before = watcher.seen.cuts
            victims[victim]()
            if rng.random() < 0.5:  # the others die while this one recovers
                eventually(lambda: watcher.seen.cuts > before + 3, 180, deployment.bridge.tail)
            for process in (deployment.bridge, deployment.sink):
                assert not process.ended, process.tail()
        # Five deaths may pass before the first cut, and what is left after the load is one cut more.
        wait_for_cuts(deployment, watcher)
        for writer in writers:
            writer.finish()
        deployment.wait_mirrored(timeout_s=120)
        deployment.assert_equal(*bank.TABLES)
        watcher.finish()
        records = deployment.records(*bank.TABLES)
        committed = sum(each.committed for each in writers)
        sys.stdout.write(f"{committed} transactions, {len(records)} records, {watcher.seen}\n")
        assert audit(records) == []
        assert watcher.seen.faults == []
        assert watcher.seen.cuts > 1
        deployment.stop()


def _restart(process: CdcProcess) -> None:
    process.kill()
    process.start()


def _restart_server(server: PostgresServer | KafkaBroker | RegistryServer) -> None:
    server.kill()
    server.restart()
