"""Two bridges for one database: one is active, the other waits and takes over; who was away too long is fenced."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.lab.stack import Kafka
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment, deployed
from tests.support.forked import run_command
from tests.support.sampling import sampled
from tests.support.servers import Database, OwnStack
from tests.support.topic_audit import audit
from tests.support.topic_damage import assert_topic_is_table
from tests.support.waiting import eventually

TABLE = "public.items"


@pytest.fixture(params=["transactional", "idempotent"])
def pair(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Deployment, CdcProcess, CdcProcess]]:
    """An active bridge and one that waits, on a server that gives a silent walsender two seconds."""
    server = own_stack.postgres(settings={"wal_sender_timeout": "2s"})
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 500) i")
    with deployed(source, kafka.bootstrap, source, tmp_path, {"http": {"bridge_port": 0}}, CdcProcess) as deployment:
        deployment.deliver(request.param)
        active, second = deployment.bridge, deployment.second_bridge()
        deployment.start_bridge()
        deployment.wait_backfilled(TABLE)
        try:
            second.start()
            second.wait_said("waiting for the slot")
            yield deployment, active, second
        finally:
            for process in (active, second):
                process.kill()


def status(deployment: Deployment) -> dict[str, Any]:
    done = run_command("status", "--json", "-c", deployment.config)
    slot: dict[str, Any] = json.loads(done.stdout)["source"]["slot"]
    return slot


def readiness(process: CdcProcess) -> tuple[int, str]:
    found = re.search(r"http://127\.0\.0\.1:\d+|127\.0\.0\.1:(\d+)", process.said())
    assert found, process.said()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[0].rpartition(':')[2]}/ready", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_who_waits_says_so_and_takes_over(pair: tuple[Deployment, CdcProcess, CdcProcess]) -> None:
    deployment, active, waiting = pair
    assert status(deployment)["waiting_bridges"] == 1
    assert readiness(active)[0] == 200
    code, said = readiness(waiting)
    assert code == 503
    assert "another bridge is active" in said
    active.kill()
    deployment.source.execute("UPDATE items SET n = 1 WHERE id <= 100")
    waiting.wait_said("streaming")
    eventually(lambda: readiness(waiting)[0] == 200)
    assert "another bridge" not in readiness(waiting)[1]
    assert status(deployment)["waiting_bridges"] == 0
    deployment.bridge = waiting
    deployment.assert_published(TABLE)
    waiting.stop()


@pytest.mark.parametrize("is_busy", sampled([True, False], [True]))
def test_a_bridge_that_was_stopped_for_a_while_is_fenced_and_waits(
    pair: tuple[Deployment, CdcProcess, CdcProcess], is_busy: bool
) -> None:
    """The server ends its walsender after wal_sender_timeout; until then the slot is taken, and the other waits.

    Woken, it finds changes in its socket, and Kafka refuses them; or only that the session is over.
    """
    deployment, active, waiting = pair
    active.signal(signal.SIGSTOP)
    if is_busy:
        deployment.source.execute("UPDATE items SET n = 2")
    waiting.wait_said("streaming")
    deployment.source.execute("UPDATE items SET n = 3 WHERE id <= 100")
    deployment.bridge = waiting
    deployment.wait_published()
    before = deployment.records(TABLE)
    active.signal(signal.SIGCONT)
    active.wait_said("waiting for the slot")
    assert alarms(active) == []
    assert deployment.records(TABLE) == before, "it wrote nothing more"
    deployment.source.execute("UPDATE items SET n = 4 WHERE id <= 200")
    deployment.assert_published(TABLE)
    assert audit(deployment.records(TABLE)) == []
    waiting.stop()


def alarms(process: CdcProcess) -> list[str]:
    """What it logged as a warning or worse, but for servers that a busy machine makes it wait for."""
    lines = process.said().splitlines()
    return [line for line in lines if '"level": "info"' not in line and '"logger": "cdc.waiting"' not in line]


def is_topic_table(deployment: Deployment) -> bool:
    """Whether the last record of each key says what the table does."""
    try:
        assert_topic_is_table(deployment, TABLE)
    except AssertionError:
        return False
    return True


def test_rows_that_a_stopped_bridge_had_handed_over_are_not_mirrored(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path, database: Database
) -> None:
    """Woken, its Kafka client may send them behind newer ones: no proof is asked of rows that are on their way.

    The woken bridge asks the other one to publish their keys again, for readers that see the last record only.
    """
    server = own_stack.postgres(settings={"wal_sender_timeout": "2s"})
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE items (id integer PRIMARY KEY, n integer)")
    source.execute("INSERT INTO items SELECT i, 0 FROM generate_series(1, 500) i")
    with deployed(source, kafka.bootstrap, database, tmp_path, kind=CdcProcess) as deployment:
        deployment.deliver("idempotent")
        active, second = deployment.bridge, deployment.second_bridge()
        try:
            deployment.start_bridge(crashpoint="bridge.rows_sent:1:stop")
            deployment.wait_backfilled(TABLE)
            deployment.sink.start()
            second.start()
            second.wait_said("waiting for the slot")
            source.execute("UPDATE items SET n = 2")
            second.wait_said("streaming")
            source.execute("UPDATE items SET n = 3")
            deployment.bridge = second
            deployment.wait_mirrored()
            active.signal(signal.SIGCONT)
            eventually(lambda: active.ended or "waiting for the slot" in active.said(), message=active.tail)
            source.execute("INSERT INTO items VALUES (1000, 0)")
            deployment.wait_mirrored()
            deployment.wait_table_equal(TABLE)
            eventually(lambda: is_topic_table(deployment), message=active.tail)
        finally:
            active.kill()
            second.kill()
