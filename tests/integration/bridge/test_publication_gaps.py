"""A publication that changes behind the bridge's back: named or healed, also when it looks the same afterwards."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import yaml

from cdc.contract.gaps import PublicationGap, SlotGap
from tests.integration.bridge.test_gaps import HEAL, REFUSED, TABLES, change_unseen, gap, heal, items, populate
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually

__all__ = ["items"]


def sessions_of(deployment: Deployment) -> int:
    return deployment.bridge.said().count('"message": "streaming"')


def wait_for_another_session(deployment: Deployment, sessions: int) -> None:
    eventually(lambda: sessions_of(deployment) > sessions or deployment.bridge.ended, 60, deployment.bridge.tail)


def test_a_table_that_was_out_of_the_publication_for_a_moment(items: Deployment) -> None:
    """It looks as before when it is back, and what changed meanwhile is in no WAL that the slot delivers."""
    items.source.execute(f"ALTER PUBLICATION {items.slot()} DROP TABLE items")
    change_unseen(items)
    items.source.execute(f"ALTER PUBLICATION {items.slot()} ADD TABLE ONLY items")
    found = gap(items, PublicationGap)
    assert found.message == (
        f"publication '{items.slot()}' did not carry public.items for a while, or carried less of it: "
        "the stream lacks changes from that time"
    )
    assert found.remedy.startswith(f"{HEAL}  # publishes public.items again")
    heal(items, "public.items")


@pytest.mark.pg(16, 18)  # 16 refuses to read WAL from before the publication; 18 reads on, without its rows
def test_a_publication_that_was_dropped(items: Deployment) -> None:
    items.source.execute(f"DROP PUBLICATION {items.slot()}")
    change_unseen(items)
    items.bridge.start()
    said = items.bridge.refusal(REFUSED)
    assert f"publication '{items.slot()}' was dropped and recreated: changes in between are not in" in said
    assert f"{HEAL} -c {items.config}  # recreates the slot, publishes all tables again" in said
    gap(items, SlotGap)  # the one that this start made changes nothing
    heal(items, *TABLES)


def test_a_slot_that_is_older_than_the_publication(database: Database, deploy: Deploy) -> None:
    populate(database)
    deployment = deploy()
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [deployment.slot()])
    change_unseen(deployment)
    deployment.bridge.start()
    said = deployment.bridge.refusal(REFUSED)
    assert f"replication slot '{deployment.slot()}' begins before publication '{deployment.slot()}' was created" in said
    remedy = said.split("remedy: ")[1]
    assert HEAL in remedy
    database.execute(remedy.split(";")[0])
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()
    deployment.wait_equal(*TABLES)
    deployment.bridge.stop()


@pytest.mark.pg(since=15)
def test_a_publication_that_left_out_operations_for_a_moment(items: Deployment) -> None:
    items.source.execute(f"ALTER PUBLICATION {items.slot()} SET (publish = 'insert')")
    change_unseen(items)
    items.source.execute(f"ALTER PUBLICATION {items.slot()} SET (publish = 'insert, update, delete, truncate')")
    assert f"publication '{items.slot()}' was altered (its options, or its name)" in gap(items, SlotGap).message
    heal(items, *TABLES)


@pytest.mark.pg(16, 18)
def test_a_publication_that_changes_while_the_bridge_runs(database: Database, deploy: Deploy) -> None:
    """A table taken out and put in again, a publication dropped, a table made anew that never had a row."""
    populate(database)
    database.execute("CREATE TABLE empty (id integer PRIMARY KEY)")
    tables = [*TABLES, "public.empty"]
    items = deploy(source={"on_gap": "rebackfill"})
    items.start_bridge()
    items.wait_backfilled(*tables)
    for alter, back in (
        (
            f"ALTER PUBLICATION {items.slot()} DROP TABLE items",
            f"ALTER PUBLICATION {items.slot()} ADD TABLE ONLY items",
        ),
        (f"DROP PUBLICATION {items.slot()}", ""),
    ):
        sessions = sessions_of(items)
        database.execute(alter)
        database.execute(
            "UPDATE items SET note = 'unseen' WHERE id <= 9; DELETE FROM items WHERE id = (SELECT max(id) FROM items)"
        )
        database.execute(back)
        items.bridge.signal(signal.SIGHUP)  # it looks every ten seconds, and now
        wait_for_another_session(items, sessions)
        database.execute("UPDATE items SET note = 'streamed again' WHERE id > 290")
        items.wait_equal(*tables)
    database.execute("DROP TABLE empty; CREATE TABLE empty (id integer PRIMARY KEY); INSERT INTO empty VALUES (1), (2)")
    items.bridge.signal(signal.SIGHUP)
    items.bridge.wait_said('"tables": ["public.empty"]')
    items.wait_equal(*tables)
    items.bridge.stop()


def test_a_bridge_that_waits_leaves_the_publication_alone(items: Deployment, tmp_path: Path) -> None:
    """Its list of tables is older than that of the active one; it takes over with the tables as they are then."""
    older = tmp_path / "older.yaml"
    settings = items.settings | {"source": {**items.settings["source"], "tables": ["public.items"]}}
    older.write_text(yaml.safe_dump(settings))
    items.start_bridge()
    second = CdcProcess("run", older, tmp_path / "second.log")
    second.start()
    try:
        second.wait_said("waiting for the slot")
        items.source.execute("INSERT INTO others VALUES (2)")
        items.assert_published(*TABLES)
    finally:
        second.kill()
    same = items.second_bridge()
    same.start()
    try:
        same.wait_said("waiting for the slot")
        items.source.execute("CREATE TABLE late (id integer PRIMARY KEY); INSERT INTO late VALUES (1)")
        items.bridge.signal(signal.SIGHUP)
        items.bridge.wait_said('"tables": ["public.late"]')
        items.bridge.stop()
        same.wait_said("streaming")
        items.source.execute("INSERT INTO others VALUES (3); INSERT INTO late VALUES (2)")
        items.wait_equal(*TABLES, "public.late")
        assert "closing a gap" not in same.said()
        same.stop()
    finally:
        same.kill()
