"""Tables that join and leave while the bridge runs: by SIGHUP, by a pattern, by being dropped."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator

import pytest

from cdc.base.errors import SourceRefused
from tests.integration.living.conftest import Living
from tests.integration.living.waiting import cdc, wait_equal
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.waiting import eventually

SETUP = """
CREATE TABLE first (id integer PRIMARY KEY);
CREATE SCHEMA extra;
CREATE TABLE extra.wanted (id integer PRIMARY KEY, note text);
CREATE TABLE extra.keyless (n integer);
INSERT INTO extra.wanted SELECT i, 'before' FROM generate_series(1, 100) i;
CREATE VIEW public.seen AS SELECT 1 AS one;
CREATE UNLOGGED TABLE public.fleeting (id integer PRIMARY KEY);
"""


@pytest.fixture(scope="module")
def live(living: Living) -> Iterator[Deployment]:
    deployment = living(SETUP, {"tables": ["public.*"], "exclude": ["public.never_*"]})
    yield deployment
    assert "Traceback" not in deployment.bridge.log.read_text()


def hang_up(live: Deployment, says: str) -> None:
    """SIGHUP, and see what the bridge makes of it."""
    before = live.bridge.said().count(says)
    live.bridge.signal(signal.SIGHUP)
    eventually(lambda: live.bridge.said().count(says) > before or live.bridge.ended, 30, live.bridge.tail)
    assert not live.bridge.ended, live.bridge.tail()


def begin_anew(live: Deployment) -> None:
    """SIGHUP, and see another session begin."""
    hang_up(live, '"message": "streaming"')


def test_a_table_is_added_with_its_rows_and_removed(live: Deployment) -> None:
    live.write_text("# kept\n" + live.config.read_text())
    assert "is changed" in cdc(live, "tables", "add", "extra.wanted")
    assert live.config.read_text().startswith("# kept\n")
    begin_anew(live)
    live.source.execute("UPDATE extra.wanted SET note = 'after' WHERE id <= 3; DELETE FROM extra.wanted WHERE id = 4")
    wait_equal(live, "extra.wanted")
    topic = live.topic("extra.wanted")
    assert f"kafka-topics.sh --delete --topic {topic}" in cdc(live, "tables", "remove", "extra.wanted")
    begin_anew(live)
    records = len(live.records("extra.wanted"))
    live.source.execute(
        "UPDATE extra.wanted SET note = 'missed'; DELETE FROM extra.wanted WHERE id > 90; INSERT INTO first VALUES (1)"
    )
    wait_equal(live, "public.first")
    assert len(live.records("extra.wanted")) == records
    cdc(live, "tables", "add", "extra.wanted")  # what it missed meanwhile is made up for, deletions too
    begin_anew(live)
    wait_equal(live, "extra.wanted")


def test_what_cannot_be_captured_is_not_added(live: Deployment) -> None:
    before = live.config.read_text()
    assert "extra.keyless has no primary key" in cdc(live, "tables", "add", "extra.keyless")
    assert "there is no table extra.nowhere" in cdc(live, "tables", "add", "extra.nowhere")
    assert "public.seen is a view" in cdc(live, "tables", "add", "public.seen")
    assert cdc(live, "tables", "add", "public.first") == "public.first is already captured\n"
    assert cdc(live, "tables", "remove", "extra.keyless") == "extra.keyless is not captured\n"
    live.source.execute("CREATE TABLE never_this (id integer PRIMARY KEY)")
    assert "source.exclude excludes public.never_this: public.never_*" in cdc(
        live, "tables", "add", "public.never_this"
    )
    assert live.config.read_text() == before


def test_a_list_of_all_that_the_patterns_reach(live: Deployment) -> None:
    lines = {line["table"]: line for line in json.loads(cdc(live, "tables", "list", "--json"))}
    assert lines["public.first"] == {
        "table": "public.first",
        "topic": live.topic("public.first"),
        "published": True,
        "key": ["id"],
        "refusal": "",
    }
    assert lines["public.seen"]["refusal"] == "a view: logical replication does not carry it"
    assert lines["public.fleeting"]["refusal"] == "an unlogged table: logical replication does not carry it"
    assert f"public.first  {live.topic('public.first')}  published, key (id)" in cdc(live, "tables", "list")


def test_what_a_reload_refuses_changes_nothing(live: Deployment) -> None:
    good = live.config.read_text()
    sessions = live.bridge.said().count('"message": "streaming"')
    for text, says in (
        (good.replace("partitions: 3", "partitions: 5"), "topics.partitions cannot change while the bridge runs"),
        (good.replace("source:", "sauce:"), "configuration not reloaded"),
        (good.replace("- public.*", "- public.*\n  - extra.keyless"), "extra.keyless has no primary key"),
        (good.replace("- public.*", "- public.*\n  - public.seen"), "relation public.seen is a view"),
        (good, "configuration reloaded: nothing changed"),
    ):
        live.write_text(text)
        hang_up(live, says)
    live.source.execute("INSERT INTO first VALUES (100)")
    live.assert_equal("public.first")
    assert live.bridge.said().count('"message": "streaming"') == sessions


def test_a_new_table_joins_by_itself(live: Deployment) -> None:
    """Its rows from before come with it; one that cannot be captured is told and left out until it can."""
    with live.source.connect(autocommit=False) as holder:  # a transaction that began before the table was published
        holder.execute("CREATE TABLE joined (id integer PRIMARY KEY, note text)")
        holder.commit()
        holder.execute("INSERT INTO joined VALUES (0, 'in a transaction that is still open')")
        live.source.execute("INSERT INTO joined SELECT i, 'before' FROM generate_series(1, 50) i")
        live.source.execute("CREATE TABLE never_mind (id integer PRIMARY KEY)")
        live.source.execute("CREATE TABLE clueless (n integer)")
        live.bridge.wait_said('"tables": ["public.joined"]')
        live.source.execute("INSERT INTO joined VALUES (51, 'after')")
        live.wait_published()
        holder.commit()
    wait_equal(live, "public.joined")
    live.bridge.wait_said("table public.clueless has no primary key")
    live.source.execute("INSERT INTO clueless VALUES (1)")
    live.source.execute("ALTER TABLE clueless ADD PRIMARY KEY (n)")
    hang_up(live, '"tables": ["public.clueless"]')
    wait_equal(live, "public.clueless", "public.joined", "public.first")
    assert "public.never_mind" not in cdc(live, "tables", "list")


def test_tables_that_are_dropped_while_they_join_stop_neither_the_watch_nor_the_start(live: Deployment) -> None:
    """Named by the catalog a moment ago, and gone when the publication is to carry them."""

    def drop_beside(application: str, begin: Callable[[], None]) -> None:
        live.source.execute("CREATE TABLE doomed (id integer PRIMARY KEY)")
        with live.source.connect(autocommit=False) as dropping:
            dropping.execute("DROP TABLE doomed")
            begin()
            eventually(
                lambda: live.source.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
                    " AND query ILIKE '%% PUBLICATION %%'",
                    (application,),
                ),
                30,
                live.bridge.tail,
            )
            dropping.commit()

    drop_beside(f"cdc {live.name} scope", lambda: live.bridge.signal(signal.SIGHUP))
    live.source.execute("CREATE TABLE late (id integer PRIMARY KEY); INSERT INTO late VALUES (1)")
    hang_up(live, '"tables": ["public.late"]')
    wait_equal(live, "public.late", "public.first")

    live.bridge.stop()
    drop_beside(f"cdc {live.name}", live.bridge.start)
    live.bridge.wait_said('"message": "streaming"')
    live.source.execute("INSERT INTO late VALUES (2)")
    wait_equal(live, "public.late", "public.first")
    assert "Traceback" not in live.bridge.log.read_text()


def test_dropped_and_made_again(live: Deployment) -> None:
    """A publication forgets a table that is dropped, so nothing of the next one is in the stream before it joins."""
    live.source.execute("CREATE TABLE phoenix (id integer PRIMARY KEY, note text)")
    hang_up(live, '"tables": ["public.phoenix"]')
    live.source.execute("INSERT INTO phoenix SELECT i, 'old' FROM generate_series(1, 9) i")
    wait_equal(live, "public.phoenix")
    live.source.execute("DROP TABLE phoenix")
    hang_up(live, "a captured table is gone")
    assert f"kafka-topics.sh --delete --topic {live.topic('public.phoenix')}" in live.bridge.log.read_text()
    live.source.execute("CREATE TABLE phoenix (id integer PRIMARY KEY, note text)")
    live.source.execute("INSERT INTO phoenix SELECT i, 'new' FROM generate_series(5, 6) i")
    hang_up(live, '"tables": ["public.phoenix"]')
    wait_equal(live, "public.phoenix")
    live.source.execute(
        "DROP TABLE phoenix; CREATE TABLE phoenix (code text PRIMARY KEY); INSERT INTO phoenix VALUES ('x')"
    )
    hang_up(live, '"tables": ["public.phoenix"]')
    wait_equal(live, "public.phoenix")


def test_what_is_named_and_cannot_be_captured_stops_the_start(database: Database, deploy: Deploy) -> None:
    database.execute(
        """
        CREATE TABLE fine (id integer PRIMARY KEY);
        CREATE VIEW looked AS SELECT 1 AS n; CREATE MATERIALIZED VIEW stored AS SELECT 1 AS n;
        CREATE UNLOGGED TABLE fleeting (id integer PRIMARY KEY);
        CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
        CREATE FOREIGN TABLE abroad (id integer) SERVER nowhere;
        CREATE TABLE parted (id integer PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (9);
        """
    )
    deployment = deploy(
        source={"tables": [f"public.{name}" for name in ["fine", "looked", "stored", "fleeting", "abroad", "parted_1"]]}
    )
    deployment.bridge.start()
    said = deployment.bridge.refusal(SourceRefused.exit_code)
    for reason in (
        "relation public.looked is a view, which logical replication does not carry",
        "relation public.stored is a materialized view",
        "relation public.abroad is a foreign table",
        "relation public.fleeting is an unlogged table: its changes are not in the WAL",
        "relation public.parted_1 is a partition of public.parted",
        "remedy: take public.abroad out of source.tables",
        'ALTER TABLE "public"."fleeting" SET LOGGED;',
        "name public.parted in source.tables instead",
    ):
        assert reason in said


def test_a_table_made_anew_while_the_stream_is_behind_is_captured_again(database: Database, deploy: Deploy) -> None:
    """The session meets the new table's name with the old one's last changes, before the publication has it."""
    database.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, n integer); INSERT INTO t SELECT generate_series(1, 9), 1"
    )
    live = deploy()
    live.start()
    live.bridge.wait_said("streaming")
    live.wait_backfilled("public.t")
    live.bridge.signal(signal.SIGSTOP)
    database.execute("UPDATE t SET n = 2 WHERE id < 5")
    database.execute("DROP TABLE t")
    database.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, n integer); INSERT INTO t SELECT generate_series(4, 7), 3"
    )
    live.bridge.signal(signal.SIGCONT)
    live.wait_published()
    live.bridge.signal(signal.SIGHUP)
    live.bridge.wait_said("tables join")
    database.execute("UPDATE t SET n = 4 WHERE id = 6")
    wait_equal(live, "public.t")
