"""``cdc backfill`` as a user types it, on a running bridge and without one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import psycopg
import pytest
from confluent_kafka import Producer

from cdc.contract.backfill import request_key
from cdc.contract.naming import progress_topic
from cdc.contract.repair import repair_request_key
from tests.support.deployment import Deploy, Deployment
from tests.support.waiting import eventually


@pytest.fixture
def shop(deploy: Deploy) -> Deployment:
    """Two tables with rows from before the first start."""
    deployment = deploy(http={"bridge_port": None})
    deployment.source.execute(
        "create table items (id int primary key, v text);"
        'create table "Größe" (id int primary key);'
        "insert into items select i, 'row ' || i from generate_series(1, 2000) i;"
        'insert into "Größe" select generate_series(1, 10);'
        "analyze"
    )
    return deployment


@pytest.fixture
def streaming(shop: Deployment) -> Deployment:
    """Its first backfill is over and the bridge runs."""
    shop.start_bridge()
    wait_for(shop, "public.items", "done")
    wait_for(shop, "public.Größe", "done")
    return shop


def command(deployment: Deployment, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "cdc", "backfill", "-c", str(deployment.config), *arguments]


def ask(deployment: Deployment, *arguments: str, code: int = 0) -> str:
    """Run the command to its end; what it said."""
    return deployment.command("backfill", *arguments, code=code)


def wait_for(deployment: Deployment, table: str, state: str) -> None:
    def reached() -> bool:
        known = deployment.backfills()
        return table in known and known[table].state == state

    eventually(reached, 30, lambda: f"{table} to be {state}\n{deployment.bridge.tail()}")


def test_asks_the_running_bridge_and_follows_it(streaming: Deployment) -> None:
    said = ask(streaming)
    assert re.search(r"^public\.items: done, 2,000 rows published in ", said, re.MULTILINE), said
    assert re.search(r"^public\.Größe: done, 10 rows published in ", said, re.MULTILINE), said
    listed = ask(streaming, "--list")
    assert "public.items: done, 100%, 2,000 rows" in listed
    assert "request" in listed
    streaming.assert_published("public.items")


def test_a_request_of_another_version_stops_nothing(streaming: Deployment) -> None:
    producer = Producer({"bootstrap.servers": streaming.bootstrap})
    for key in (request_key("strange"), repair_request_key("strange", 0)):
        producer.produce(progress_topic(streaming.name), b'{"v":2,"command":"paint"}', key)
    assert producer.flush(30) == 0
    left_alone = 'request record is not of topic contract version 1: b\'{\\"v\\":2'

    def are_left_alone() -> None:
        eventually(lambda: streaming.bridge.said().count(left_alone) == 2, message=streaming.bridge.tail)

    are_left_alone()
    assert "public.items: done" in ask(streaming, "public.items")
    streaming.bridge.stop()
    streaming.start_bridge()
    are_left_alone()
    streaming.assert_published("public.items")


def test_condition_and_sweep(streaming: Deployment) -> None:
    assert "public.items: done, 1,500 rows published in" in ask(streaming, "public.items", "--where", "id > 500")
    said = ask(streaming, "public.items", "--sweep")
    assert "public.items: done, 2,000 rows published, 0 keys deleted that the table does not have in" in said


def test_pause_list_resume_and_cancel(streaming: Deployment) -> None:
    assert "asked for public.items" in ask(streaming, "public.items", "--rate", "10", "--no-follow")
    wait_for(streaming, "public.items", "running")
    said = ask(streaming, "public.items", "--rate", "50", code=2)
    assert "under way already: public.items (running" in said
    assert "--yes" in said
    assert "public.items: paused" in ask(streaming, "--pause")
    assert "public.items: paused" in ask(streaming, "--list")
    ask(streaming, "--resume", "public.items")
    with subprocess.Popen(command(streaming), stdout=subprocess.PIPE, text=True, encoding="utf-8") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "already running: public.items\n"
        assert "0 of 1 tables over" in follower.stdout.readline()
        assert "public.items: cancelled" in ask(streaming, "--cancel")
        rest = follower.stdout.read()
        assert follower.wait(30) == 3, "cancelled is not done"
    assert "public.items: cancelled" in rest


def test_interrupted_following_leaves_the_backfill_alone(streaming: Deployment) -> None:
    with subprocess.Popen(
        command(streaming, "public.items", "--rate", "10"), stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as follower:
        assert follower.stdout is not None
        while "of 1 tables over" not in follower.stdout.readline():
            assert follower.poll() is None
        follower.send_signal(signal.SIGINT)
        rest = follower.stdout.read()
        assert follower.wait(30) == 130
    assert f"the backfill goes on. To end it: cdc backfill -c {streaming.config} --cancel public.items" in rest
    wait_for(streaming, "public.items", "running")


def test_runs_a_bridge_itself_when_none_does(shop: Deployment) -> None:
    said = ask(shop, "--parallel", "1")
    assert "waiting for a bridge to take the request" in said
    assert "public.items: done, 2,000 rows published" in said
    slots = shop.source.execute("select active from pg_replication_slots where slot_name = %s", [shop.slot()])
    assert slots == [(False,)], "our own bridge is gone"
    shop.start_bridge()
    shop.assert_published("public.items")


def test_own_bridge_fails_with_its_own_error_and_the_request_is_taken_back(shop: Deployment) -> None:
    shop.source.execute(f"create publication {shop.slot()} for table items with (publish = 'insert')")
    said = ask(shop, "public.items", code=3)
    assert f"publication {shop.slot()} leaves out update" in said
    assert "no backfill yet" in ask(shop, "--list")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["public.nothing"], ["not captured: public.nothing", "public.Größe, public.items"]),
        (["public.items", "--where", "nix = 1"], ["--where is not a condition", 'column "nix" does not exist']),
        (["public.items", "--where", "true); drop table items; --"], ["--where is not a condition", "syntax error"]),
    ],
)
def test_refusals(shop: Deployment, arguments: list[str], words: list[str]) -> None:
    said = ask(shop, *arguments, code=2)
    for word in words:
        assert word in said


def test_nobody_takes_a_change_while_no_bridge_runs(streaming: Deployment) -> None:
    ask(streaming, "public.items", "--rate", "10", "--no-follow")
    wait_for(streaming, "public.items", "running")
    streaming.stop()
    ask(streaming, "--cancel", "--no-follow")
    assert "public.items: cancel asked, no bridge has taken it yet" in ask(streaming, "--list")
    streaming.start_bridge()
    wait_for(streaming, "public.items", "cancelled")


@pytest.mark.parametrize("asked", [(), ("--where", "id > 1000"), ("--sweep",)])
def test_a_gap_that_was_cancelled_is_still_swept_by_whatever_is_asked_next(
    streaming: Deployment, asked: tuple[str, ...]
) -> None:
    """The topic was called whole, with the rows that were deleted in the gap."""
    streaming.stop()
    streaming.source.execute("select pg_drop_replication_slot(%s)", [streaming.slot()])
    streaming.source.execute("delete from items where id <= 100")
    streaming.settings["source"]["on_gap"] = "rebackfill"
    streaming.write()
    streaming.bridge.start(crashpoint="backfill.before_chunk_done")
    assert streaming.bridge.wait() == -signal.SIGKILL
    ask(streaming, "--cancel", "--no-follow", "public.items")
    streaming.start_bridge()
    wait_for(streaming, "public.items", "cancelled")
    assert "public.items: done" in ask(streaming, "public.items", *asked)
    assert streaming.backfills()["public.items"].whole
    streaming.assert_published("public.items")


def test_replica_of_a_quiet_source_becomes_exact_with_its_first_backfill(shop: Deployment) -> None:
    shop.start()

    def states() -> list[tuple[str, str]]:
        try:
            return shop.replica.execute("select replica_table, state from cdc.mirrored_table order by 1")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return []

    expected = [("public.Größe", "exact"), ("public.items", "exact")]
    eventually(lambda: sorted(states()) == expected, 60, lambda: f"{states()}\n{shop.sink.tail()}")
    assert shop.replica.execute("select count(*) from items") == [(2000,)]


def test_tables_without_a_key_are_left_out_and_told_of(streaming: Deployment) -> None:
    """They were waited for, and the running bridge was said to have another configuration."""
    streaming.source.execute("create table keyless (n int); create table locked (id int primary key deferrable)")
    said = ask(streaming)
    assert "public.items: done" in said
    assert "keyless" not in said
    assert "public.keyless has no primary key" in ask(streaming, "public.keyless", "public.items", code=2)
    refused = ask(streaming, "public.locked", code=2)
    assert "public.locked has a DEFERRABLE primary key" in refused
    assert 'remedy: ALTER TABLE "public"."locked" DROP CONSTRAINT' in refused
