"""Ending, waiting, taking over: what happens to the stream between two bridges, and that none of it is lost."""

from __future__ import annotations

import signal
import threading

import orjson
from confluent_kafka import Producer

from cdc.base.config.load import load
from cdc.base.errors import FencedError
from cdc.bridge.decoding import Decoding
from cdc.bridge.metering import BridgeMeter
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.resume import GRACE_S
from cdc.bridge.scope_watch import ScopeWatch
from cdc.bridge.session import BridgeSession, Fencings, KeptByProcess
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually


def make_rows(database: Database, first: int, last: int) -> None:
    database.execute(f"INSERT INTO items SELECT i, 'row ' || i FROM generate_series({first}, {last}) i")


def new_deployment(deploy: Deploy) -> Deployment:
    deployment = deploy()
    deployment.source.execute("CREATE TABLE items (id integer PRIMARY KEY, note text)")
    deployment.start_bridge()
    return deployment


def test_sigterm_drains_and_the_next_start_goes_on(database: Database, deploy: Deploy) -> None:
    deployment = new_deployment(deploy)
    make_rows(database, 1, 20_000)
    deployment.bridge.stop()
    make_rows(database, 20_001, 21_000)
    database.execute("UPDATE items SET note = 'changed while nobody listened' WHERE id % 100 = 0")
    deployment.start_bridge()
    deployment.assert_published("public.items")
    deployment.bridge.stop()
    lsn = deployment.now()
    assert deployment.bridge.said().count("stopped") == 1
    progress = deployment.progress()
    assert progress is not None
    assert progress.partial is None
    assert progress.lsn <= lsn


def test_a_second_bridge_waits_and_takes_over(database: Database, deploy: Deploy) -> None:
    deployment = new_deployment(deploy)
    second = deployment.second_bridge()
    try:
        second.start()
        second.wait_said("waiting for the slot")
        make_rows(database, 1, 1000)
        deployment.assert_published("public.items")  # the first one was not fenced by the waiting one
        deployment.bridge.kill()
        make_rows(database, 1001, 2000)
        second.wait_said("streaming")
        deployment.assert_published("public.items")
        second.stop()
    finally:
        second.kill()


class Impatient(threading.Event):
    """SIGTERM comes while the session waits for rows of the bridge before."""

    def wait(self, timeout: float | None = None) -> bool:
        if timeout == GRACE_S:
            self.set()
        return super().wait(timeout)


def test_who_is_stopped_before_the_last_rows_are_there_does_not_say_that_there_are_none(deploy: Deploy) -> None:
    """The next start would not look for them, and publish them once more."""
    deployment = deploy()
    deployment.source.execute("CREATE TABLE items (id integer PRIMARY KEY, note text)")
    deployment.deliver("idempotent")
    deployment.start_bridge()
    deployment.wait_published()
    deployment.bridge.kill()
    config, stop = load(deployment.config, {}), Impatient()
    scope = ScopeWatch(config, lambda: config, threading.Event(), stop)
    with BridgeMeter(config.http, CountsByTable(), stop) as meter:
        kept = KeptByProcess(CountsByTable(), Decoding("unused", streaming=False), Fencings())
        BridgeSession(config, scope, lambda: None, meter, kept).run()
    assert stop.is_set()
    progress = deployment.progress()
    assert progress is not None
    assert progress.lead is not None
    assert progress.lead.is_open


def test_a_waiting_bridge_ends_on_sigterm(deploy: Deploy) -> None:
    deployment = new_deployment(deploy)
    second = deployment.second_bridge()
    second.start()
    second.wait_said("waiting for the slot")
    second.stop()


def test_a_bridge_that_is_fenced_goes_on_and_ends_with_its_own_exit_code_if_that_happens_again_and_again(
    database: Database, deploy: Deploy
) -> None:
    """A bridge that lost the slot while it waited for Kafka fences the one that has it; only a namesake does not stop.

    What a world in memory found: the one that had the slot was told to end, although nobody was to blame.
    """
    deployment = new_deployment(deploy)
    make_rows(database, 1, 10)
    deployment.wait_published()
    usurper = {"bootstrap.servers": deployment.bootstrap, "transactional.id": f"cdc-{deployment.name}", "log_level": 0}
    Producer(usurper).init_transactions(30)
    make_rows(database, 11, 20)
    deployment.assert_published("public.items")
    deployment.bridge.wait_said("another bridge took over")
    for number in range(21, 25):
        Producer(usurper).init_transactions(30)
        make_rows(database, number, number)
        eventually(lambda: deployment.bridge.ended or published(deployment) == number, 30)
    said = deployment.bridge.refusal(FencedError.exit_code)
    assert f"'cdc-{deployment.name}'" in said
    assert "remedy" in said
    deployment.start_bridge()
    make_rows(database, 31, 40)
    deployment.assert_published("public.items")


def published(deployment: Deployment) -> int:
    """The greatest id in the topic."""
    return max(int(orjson.loads(record.key or b"")["id"]) for record in deployment.records("public.items"))


def test_a_lost_walsender_is_replaced(database: Database, deploy: Deploy) -> None:
    """The server ends our session, as it does at a failover: tried again, nothing lost or repeated."""
    deployment = new_deployment(deploy)
    make_rows(database, 1, 100)
    deployment.wait_published()
    database.execute(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [deployment.slot()]
    )
    make_rows(database, 101, 200)
    deployment.assert_published("public.items")
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'cdc %'")
    make_rows(database, 201, 300)
    deployment.assert_published("public.items")
    assert "trying again" in deployment.bridge.said()


def test_neither_key_is_readable_before_the_kafka_commit(database: Database, deploy: Deploy) -> None:
    """The tombstone and the upsert of a changed key are in one Kafka transaction: both or none."""
    deployment = new_deployment(deploy)
    deployment.bridge.wait_said("backfill done")  # or the row would be published by that, too
    make_rows(database, 1, 1)
    deployment.wait_published()
    deployment.bridge.stop()
    deployment.bridge.start(crashpoint="bridge.before_kafka_commit")
    deployment.bridge.wait_said("streaming")
    database.execute("UPDATE items SET id = 2")
    assert deployment.bridge.wait() == -signal.SIGKILL
    assert [record.key for record in deployment.records("public.items")] == [b'{"id":1}']
    deployment.start_bridge()
    deployment.assert_published("public.items")
    after = [(record.key, record.value is None) for record in deployment.records("public.items")]
    assert sorted(after) == [(b'{"id":1}', False), (b'{"id":1}', True), (b'{"id":2}', False)]


def test_a_row_that_is_gone_or_newer_when_read_again(database: Database, deploy: Deploy) -> None:
    """Unchanged TOAST while the bridge is away: no partial row is ever published, and newer values are marked."""
    deployment = new_deployment(deploy)
    big = "(SELECT string_agg(md5((i * {0})::text), '') FROM generate_series(1, 300) i)"
    database.execute(f"INSERT INTO items SELECT n, {big.format('n')} FROM generate_series(1, 6) n")
    database.execute("ALTER TABLE items ADD COLUMN n integer DEFAULT 0")
    database.execute("UPDATE items SET n = 1, note = note || '!'")
    deployment.wait_published()
    deployment.bridge.stop()
    database.execute("UPDATE items SET n = 2")
    database.execute("DELETE FROM items WHERE id = 1")
    database.execute(f"UPDATE items SET note = {big.format(77)} WHERE id = 2")
    database.execute("UPDATE items SET id = 30, n = 3 WHERE id = 3")
    database.execute(f"DELETE FROM items WHERE id = 4; INSERT INTO items VALUES (4, {big.format(44)}, 4)")
    database.execute("UPDATE items SET note = NULL WHERE id = 5")
    deployment.start_bridge()
    deployment.assert_published("public.items")
    values = [record.value for record in deployment.records("public.items") if record.value is not None]
    assert all(b'"note":' in value for value in values)
    newer = {record.key for record in deployment.records("public.items") if b"toast=newer" in record.header}
    assert b'{"id":2}' in newer
    assert b'{"id":6}' not in newer


def test_the_first_start_waits_for_no_one_else(database: Database, deploy: Deploy) -> None:
    """Publication, slot and topics are made, and the publication follows the tables of the configuration."""
    deployment = new_deployment(deploy)
    database.execute("CREATE TABLE later (id integer PRIMARY KEY)")
    database.execute("INSERT INTO later VALUES (1)")
    make_rows(database, 1, 10)
    deployment.assert_published("public.items")
    deployment.bridge.stop()
    deployment.start_bridge()
    database.execute("INSERT INTO later VALUES (2)")
    deployment.wait_published()
    eventually(lambda: {record.key for record in deployment.records("public.later")} == {b'{"id":1}', b'{"id":2}'})
