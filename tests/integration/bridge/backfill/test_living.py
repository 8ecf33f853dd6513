"""Tables that are rewritten, emptied, given partitions or dropped while they are read; people who change their mind."""

from __future__ import annotations

import uuid
from typing import Literal

import psycopg
import pytest

from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillProgress, BackfillRequest
from cdc.kafka.publish.requests import write_request
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually

_ROWS = 8_000
_NAME = "public.t"
_SLOW = 1_500
"""Rows a second: the backfill of the table below would take five seconds."""
_SLOWER = 500
"""For what must not be over before the test has seen it begin."""


@pytest.fixture
def deployment(database: Database, deploy: Deploy) -> Deployment:
    """A running bridge; the table has many blocks, and its first backfill is done."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int DEFAULT 0, pad text) WITH (fillfactor = 10)")
    database.execute(f"INSERT INTO t SELECT i, 0, repeat('p', 90) FROM generate_series(1, {_ROWS}) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    return deployment


def ask(
    deployment: Deployment,
    command: Literal["start", "pause", "resume", "cancel"] = "start",
    *,
    where: str | None = None,
    rate: int | None = None,
    sweep: bool = False,
    tables: tuple[str, ...] = (_NAME,),
) -> None:
    """Ask the running bridge; returns when it took the request."""
    request = BackfillRequest(uuid.uuid4().hex, command, tables, where=where, rate=rate, sweep=sweep)
    options = {"bootstrap.servers": deployment.bootstrap}
    write_request(options, progress_topic(deployment.name), request)
    if command == "start":
        taken = request.request
        eventually(lambda: deployment.backfills()[tables[-1]].request == taken, message=deployment.bridge.tail)


def state(deployment: Deployment) -> BackfillProgress:
    """How far it is."""
    return deployment.backfills()[_NAME]


def started(deployment: Deployment) -> None:
    """Wait until some rows are out, and not all."""
    eventually(lambda: state(deployment).rows > 0, message=deployment.bridge.tail)
    assert state(deployment).state == "running"


def test_rewritten_meanwhile(deployment: Deployment) -> None:
    """Rows move without a word in the stream: what was read before says nothing about where they are now."""
    ask(deployment, rate=_SLOWER)
    started(deployment)
    deployment.source.execute("DELETE FROM t WHERE id % 3 = 0")
    deployment.source.execute("VACUUM FULL t")
    deployment.wait_backfilled()
    deployment.assert_published(_NAME)
    assert "the table was rewritten" in deployment.bridge.said()


def test_truncated_and_filled_again_meanwhile(deployment: Deployment) -> None:
    ask(deployment, rate=_SLOWER)
    started(deployment)
    deployment.source.execute("TRUNCATE t")
    deployment.source.execute("INSERT INTO t (id) SELECT generate_series(5, 500)")
    deployment.wait_backfilled()
    deployment.assert_published(_NAME)


def test_gone_meanwhile(deployment: Deployment) -> None:
    ask(deployment, rate=_SLOW // 10)
    started(deployment)
    deployment.source.execute("DROP TABLE t")
    eventually(lambda: state(deployment).state == "failed", message=deployment.bridge.tail)
    assert "the table is gone" in state(deployment).reason


def test_paused_resumed_cancelled(deployment: Deployment) -> None:
    ask(deployment, rate=_SLOW // 10)  # it is never meant to end
    started(deployment)
    ask(deployment, "pause")
    eventually(lambda: state(deployment).state == "paused", message=deployment.bridge.tail)
    deployment.bridge.kill()
    deployment.start_bridge()
    deployment.source.execute("UPDATE t SET n = 1 WHERE id = 7")
    deployment.wait_published()
    assert state(deployment).state == "paused"
    ask(deployment, "resume")
    eventually(lambda: state(deployment).state == "running", message=deployment.bridge.tail)
    ask(deployment, "cancel")
    eventually(lambda: state(deployment).state == "cancelled", message=deployment.bridge.tail)
    assert state(deployment).whole  # the first backfill was complete, and the stream never stopped
    deployment.assert_published(_NAME)


def test_rate(deployment: Deployment) -> None:
    ask(deployment, where="id <= 3000", rate=_SLOW)
    deployment.wait_backfilled()
    done = state(deployment)
    assert done.rows == 3000
    assert (done.updated_at - done.started_at) / 1e6 > 0.8 * 3000 / _SLOW


@pytest.mark.parametrize("restarted", [False, True])
def test_a_rate_slows_down_its_own_tables_only(database: Database, deploy: Deploy, restarted: bool) -> None:
    """And those one after another: who names a rate wants to spare the source."""
    for name in ("slow", "slow_too", "quick"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, pad text) WITH (fillfactor = 10)")
        database.execute(f"INSERT INTO {name} SELECT i, repeat('p', 90) FROM generate_series(1, {_ROWS}) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    ask(deployment, rate=50, tables=("public.slow", "public.slow_too"))  # they are never meant to end
    eventually(lambda: deployment.backfills()["public.slow"].rows > 0, message=deployment.bridge.tail)
    if restarted:
        deployment.bridge.kill()
        deployment.start_bridge()
    ask(deployment, tables=("public.quick",))
    deployment.wait_backfilled("public.quick")
    found = deployment.backfills()
    assert [found[f"public.{name}"].state for name in ("slow", "slow_too")] == ["running", "waiting"]
    assert found["public.quick"].rows == _ROWS
    assert found["public.slow"].rows < _ROWS
    ask(deployment, "cancel", tables=())
    deployment.assert_published("public.slow", "public.slow_too", "public.quick")


def test_a_condition(deployment: Deployment) -> None:
    before = len(deployment.records(_NAME))
    ask(deployment, where="id % 10 = 0 AND pad LIKE 'p%'", sweep=True)
    deployment.wait_backfilled()
    assert state(deployment).rows == _ROWS // 10
    assert state(deployment).swept == 0  # who reads some rows cannot know which are gone
    deployment.assert_published(_NAME)
    assert len(deployment.records(_NAME)) == before + _ROWS // 10


def test_a_wrong_condition(deployment: Deployment) -> None:
    ask(deployment, where="no_such_column > 1")
    eventually(lambda: state(deployment).state == "failed", message=deployment.bridge.tail)
    assert "no_such_column" in state(deployment).reason
    assert "--where is not a condition on public.t" in state(deployment).reason
    deployment.source.execute("INSERT INTO t VALUES (-1)")
    deployment.assert_published(_NAME)  # the stream goes on


def test_locked_meanwhile(deployment: Deployment) -> None:
    """Nobody waits for the lock but the reader."""
    deployment.source.execute("CREATE TABLE other (id int PRIMARY KEY)")
    with psycopg.connect(deployment.source.dsn) as blocker:
        blocker.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        ask(deployment)
        blocker.execute("UPDATE t SET n = 2 WHERE id = 1")
        blocker.commit()
    deployment.wait_backfilled()
    deployment.assert_published(_NAME)


def test_stopped_while_it_waits_for_a_lock(deployment: Deployment) -> None:
    with psycopg.connect(deployment.source.dsn) as blocker:
        blocker.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        ask(deployment)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE %s"
        mine = f"cdc {deployment.name} backfill"
        eventually(lambda: deployment.source.execute(waiting, [mine])[0][0], message=deployment.bridge.tail)
        deployment.bridge.stop()
        assert deployment.source.execute(waiting, [mine])[0][0] == 0


def test_ghosts_are_swept(deployment: Deployment) -> None:
    """Rows deleted while no slot existed: one tombstone for each, and none for a row that came meanwhile."""
    deployment.bridge.stop()
    deployment.source.execute(f"SELECT pg_drop_replication_slot('{deployment.slot()}')")
    deployment.source.execute("DELETE FROM t WHERE id % 5 = 0")
    deployment.source.execute("UPDATE t SET n = 3 WHERE id % 5 = 1")
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()
    deployment.source.execute("INSERT INTO t (id) VALUES (5), (10)")
    eventually(lambda: state(deployment).cause == "gap", message=deployment.bridge.tail)
    deployment.wait_backfilled()
    done = state(deployment)
    assert done.whole
    assert _ROWS // 5 - 2 <= done.swept <= _ROWS // 5
    deployment.assert_published(_NAME)


def test_partitions_attached_meanwhile(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, pad text) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10000) WITH (fillfactor = 10)")
    database.execute("INSERT INTO t SELECT i, 0, repeat('p', 90) FROM generate_series(1, 7000) i")
    deployment = deploy()
    deployment.start_bridge()
    deployment.wait_backfilled()
    ask(deployment, rate=_SLOWER)
    started(deployment)
    database.execute("CREATE TABLE t_2 (LIKE t INCLUDING ALL)")
    database.execute("INSERT INTO t_2 SELECT i, 0, 'attached' FROM generate_series(10000, 10500) i")
    database.execute("ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (10000) TO (20000)")
    deployment.wait_backfilled()
    deployment.assert_published(_NAME)
