"""Remedies are executed: what a message prints is pasted into a shell as it stands, in the state that printed it.

Afterwards source, topic and replica hold the same rows, compared row by row. In each state rows have come, changed and
gone unseen: a remedy that only publishes what there is leaves rows behind that are gone, and makes things worse.
``tests/architecture/test_remedies.py`` lists which printed commands are executed, and why others are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from cdc.base.errors import GapError
from cdc.kafka.brokers import BrokerAdmin
from tests.support.deployment import Deploy, Deployment
from tests.support.printed_steps import paste, running, shell
from tests.support.servers import Database
from tests.support.waiting import eventually

TABLES = ("public.items", "public.others")
_COMMAND: Final = re.compile(r"(?:CDC_\w+=\S+ )?\bcdc [a-z].*")


def printed(text: str, wanted: str) -> str:
    """The line to paste, from the command to its end: a shell takes what is behind # for a comment."""
    remedies = text.partition("remedy: ")[2]
    found = [line for line in _COMMAND.findall(remedies) if wanted in line]
    assert found, text
    return str(found[0])


def populate(source: Database) -> None:
    source.execute(
        "CREATE TABLE items (id integer PRIMARY KEY, note text); CREATE TABLE others (id integer PRIMARY KEY);"
        "INSERT INTO items SELECT i, 'before' FROM generate_series(1, 300) i; INSERT INTO others VALUES (1)"
    )


def change_unseen(deployment: Deployment) -> None:
    """Rows come, change and go, and no slot sees it."""
    deployment.source.execute(
        "DELETE FROM items WHERE id <= 20; INSERT INTO items VALUES (1000, 'unseen');"
        "UPDATE items SET note = 'unseen' WHERE id = 30"
    )


@pytest.fixture
def items(database: Database, deploy: Deploy) -> Deployment:
    """Published, mirrored, and the bridge stopped; the sink goes on."""
    populate(database)
    deployment = deploy()
    deployment.start()
    deployment.wait_backfilled(*TABLES)
    deployment.assert_equal(*TABLES)
    deployment.bridge.stop()
    return deployment


def lose_slot(items: Deployment) -> None:
    items.source.execute("SELECT pg_drop_replication_slot(%s)", [items.slot()])
    change_unseen(items)


def push_slot(items: Deployment) -> None:
    change_unseen(items)
    items.source.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())", [items.slot()])


def take_table_out(items: Deployment) -> None:
    items.source.execute(f"ALTER PUBLICATION {items.slot()} DROP TABLE items")
    change_unseen(items)
    items.source.execute(f"ALTER PUBLICATION {items.slot()} ADD TABLE ONLY items")


def drop_publication(items: Deployment) -> None:
    items.source.execute(f"DROP PUBLICATION {items.slot()}")
    change_unseen(items)


def lose_topic(items: Deployment) -> None:
    items.source.execute("UPDATE items SET note = 'streamed later' WHERE id <= 50")
    topic = items.topic("public.items")
    admin = BrokerAdmin({"bootstrap.servers": items.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin.metadata(timeout_s=10).topics)


class Gap(NamedTuple):
    """A way to lose changes behind the bridge's back, and what the bridge says of it."""

    happen: Callable[[Deployment], None]
    words: str


GAPS: Final = {
    "slot lost": Gap(lose_slot, "is gone"),
    "slot ahead": Gap(push_slot, "replication slot"),
    "publication lost a table": Gap(take_table_out, "public.items"),
    "publication lost": Gap(drop_publication, "publication"),
    "topic lost": Gap(lose_topic, "topic"),
}


@pytest.mark.parametrize("name", GAPS)
def test_what_a_bridge_prints_that_refuses_to_start(items: Deployment, name: str) -> None:
    GAPS[name].happen(items)
    items.bridge.start()
    said = items.bridge.refusal(GapError.exit_code)
    assert GAPS[name].words in said
    line = printed(said, "cdc run")
    assert f" -c {items.config}" in line
    with running(line, items.directory, shell()):

        def healed() -> bool:
            found = items.backfills().get("public.items")
            return found is not None and (found.cause, found.state) == ("gap", "done")

        eventually(healed, 60)
    items.start_bridge()
    items.source.execute("UPDATE items SET note = 'streamed again' WHERE id > 290")
    items.assert_equal(*TABLES)


def test_what_the_log_says_of_a_table_that_changed_its_shape(items: Deployment) -> None:
    """A daemon's log names no file, for it may be read anywhere: a shell finds the file in CDC_CONFIG."""
    items.start_bridge()
    items.source.execute("ALTER TABLE items ADD COLUMN extra integer DEFAULT 7; DELETE FROM items WHERE id = 50")
    items.bridge.wait_said("table was altered: rows that do not change")
    said = next(line for line in items.bridge.said().splitlines() if "table was altered: rows" in line)
    line = printed(f"remedy: {json.loads(said)['remedy']}", "cdc backfill")
    paste(line, items.directory, {**shell(), "CDC_CONFIG": str(items.config)})
    items.assert_equal(*TABLES)


def test_what_status_prints_of_a_replica_table_that_is_not_the_sinks(database: Database, deploy: Deploy) -> None:
    populate(database)
    deployment = deploy()
    deployment.replica.execute(
        "CREATE TABLE items (id integer PRIMARY KEY, note text); INSERT INTO items VALUES (1, 'theirs'), (9999, 'old')"
    )
    deployment.start()
    deployment.wait_backfilled(*TABLES)

    def stopped() -> bool:
        held = "SELECT count(*) FROM cdc.mirrored_table WHERE state = 'stopped'"
        return deployment.cut() is not None and deployment.replica.execute(held) == [(1,)]

    eventually(stopped, 60)
    line = printed(deployment.command("status", code=3), "--rebuild")
    deployment.sink.stop()
    with running(line, deployment.directory, shell()):
        deployment.wait_table_equal("public.items")
    deployment.sink.start()
    deployment.assert_equal(*TABLES)


def test_what_status_prints_when_nothing_runs(items: Deployment) -> None:
    """Bridge and sink are started by what is printed, and nothing else."""
    items.sink.stop()
    items.source.execute("DELETE FROM items WHERE id <= 20; INSERT INTO items VALUES (1000, 'new')")
    said = items.command("status", code=4)
    bridge = printed(said, "cdc run")
    sink = printed(said.partition("no sink runs")[2], "cdc sink")
    with running(bridge, items.directory, shell()), running(sink, items.directory, shell()):
        items.wait_table_equal("public.items")
    items.start()
    items.assert_equal(*TABLES)
