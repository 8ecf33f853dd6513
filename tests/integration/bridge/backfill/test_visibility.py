"""A commit is in the WAL, and streamed, before snapshots see it. A chunk read in between is older than the topic.

The commits hang there for as long as the test wants, because a synchronous standby is awaited that does not exist.
With ``ChunkTask.guard`` taken out (``readers``, the loop that begins again), the first test fails with an older version
behind a newer one; so does the second when rows that the stream touched are not dropped (``rows``, ``touched``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import psycopg

from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillRequest
from cdc.kafka.publish.requests import write_request
from cdc.lab.stack import Kafka
from tests.support.deployment import Deployment, deployed
from tests.support.held_commits import hold_commits
from tests.support.servers import Database, OwnStack
from tests.support.waiting import eventually

_ROWS = 200


def values(deployment: Deployment, row: int, leaf: int | None = None) -> list[object]:
    """What the topic said of a row, in order: its ``n``, or None where it was deleted."""
    key = b'{"id":%d}' % row if leaf is None else b'{"id":%d,"leaf":%d}' % (row, leaf)
    return [
        None if record.value is None else msgspec.json.decode(record.value)["n"]
        for record in deployment.records("public.t")
        if record.key == key
    ]


def ask(deployment: Deployment, request: str) -> None:
    """Have everything published again."""
    options = {"bootstrap.servers": deployment.bootstrap}
    write_request(options, progress_topic(deployment.name), BackfillRequest(request, "start"))
    eventually(lambda: deployment.backfills()["public.t"].request == request, message=deployment.bridge.tail)


def test_a_change_streamed_before_and_not_visible_yet(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    """Nobody noted its keys: the chunk has to wait until a snapshot sees it, also after a restart, and says so."""
    server = own_stack.postgres()
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    source.execute(f"INSERT INTO t SELECT i, 0 FROM generate_series(1, {_ROWS}) i")
    with deployed(source, kafka.bootstrap, source, tmp_path) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled()
        _introduce(deployment)
        with hold_commits(server.dsn()) as held:
            held.start(["UPDATE t SET n = 1 WHERE id = 1", "DELETE FROM t WHERE id = 2"])
            eventually(lambda: values(deployment, 2)[-1] is None, message=deployment.bridge.tail)
            deployment.bridge.kill()
            deployment.start_bridge()
            ask(deployment, "second")
            eventually(
                lambda: "to become visible" in deployment.backfills()["public.t"].reason,
                message=lambda: f"a backfill that says what it waits for: {deployment.backfills()}",
            )
            held.release()
        deployment.wait_backfilled()
        deployment.assert_published("public.t")
        assert values(deployment, 1) == [0, 1, 1]
        assert values(deployment, 2) == [0, None]


def test_a_change_streamed_meanwhile_and_not_visible_yet(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    """Its keys were noted: the chunk's older rows are dropped, and a deleted row does not come back."""
    server = own_stack.postgres()
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE t (id int, n int, leaf int, PRIMARY KEY (id, leaf)) PARTITION BY LIST (leaf)")
    for leaf in (0, 1):
        source.execute(f"CREATE TABLE t_{leaf} PARTITION OF t FOR VALUES IN ({leaf})")
        source.execute(f"INSERT INTO t SELECT i, 0, {leaf} FROM generate_series(1, {_ROWS}) i")
    with deployed(source, kafka.bootstrap, source, tmp_path, {"snapshot": {"parallel": 1}}) as deployment:
        deployment.start_bridge()
        deployment.wait_backfilled()
        _introduce(deployment)
        with psycopg.connect(server.dsn()) as blocker:
            # The only reader stops here: keys are noted by now, and the other partition's snapshot is still to come
            blocker.execute("LOCK TABLE t_0 IN ACCESS EXCLUSIVE MODE")
            ask(deployment, "second")
            eventually(
                lambda: _waits_for_lock(source), message=lambda: f"a reader that waits\n{deployment.bridge.tail()}"
            )
            with hold_commits(server.dsn()) as held:
                held.start(["UPDATE t_1 SET n = 1 WHERE id = 1", "DELETE FROM t_1 WHERE id = 2"])
                eventually(lambda: values(deployment, 2, leaf=1)[-1] is None, message=deployment.bridge.tail)
                blocker.rollback()
                deployment.wait_backfilled()
                assert values(deployment, 1, leaf=1) == [0, 1]
                assert values(deployment, 2, leaf=1) == [0, None]
                held.release()
        deployment.assert_published("public.t")


def test_a_change_before_the_slot_and_not_visible_yet(own_stack: OwnStack, kafka: Kafka, tmp_path: Path) -> None:
    """A new slot waits for transactions that run, and for those that began meanwhile. One that began after these may be
    in the WAL before the slot begins, and hang there: it is not streamed, and a chunk that does not wait lacks its row.
    """
    server = own_stack.postgres()
    source = Database("postgres", server.dsn())
    source.execute("CREATE TABLE t (id int PRIMARY KEY, n int)")
    with (
        deployed(source, kafka.bootstrap, source, tmp_path) as deployment,
        psycopg.connect(server.dsn()) as first,
        psycopg.connect(server.dsn()) as second,
    ):
        first.execute("SELECT pg_current_xact_id()")
        deployment.bridge.start()
        eventually(lambda: _blocks(source, first), message=deployment.bridge.tail)
        second.execute("SELECT pg_current_xact_id()")
        first.commit()
        eventually(lambda: _blocks(source, second), message=deployment.bridge.tail)
        with hold_commits(server.dsn()) as held:
            held.start(["INSERT INTO t VALUES (1, 1)"])
            second.commit()
            eventually(
                lambda: any("to become visible" in each.reason for each in deployment.backfills().values()),
                message=lambda: f"a backfill that says what it waits for: {deployment.backfills()}",
            )
            held.release()
        deployment.wait_backfilled()
        deployment.assert_published("public.t")
        assert values(deployment, 1) == [1]


def _blocks(source: Database, session: psycopg.Connection[tuple[object, ...]]) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    return bool(source.execute(query, [session.info.backend_pid])[0][0])


def _introduce(deployment: Deployment) -> None:
    """A table that the stream names for the first time is looked up, which waits for its transaction; not the next."""
    deployment.source.execute("UPDATE t SET n = n WHERE id = 3")
    deployment.wait_published()


def _waits_for_lock(source: Database) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE '%backfill'"
    return bool(source.execute(query)[0][0])
