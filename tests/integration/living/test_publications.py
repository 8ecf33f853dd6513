"""Publications that somebody else made: row filters, column lists, whole schemas, generated columns."""

from __future__ import annotations

import json

import pytest

from cdc.base.errors import GapError, SourceRefused
from cdc.lab.proof.comparison import TableShape, describe, pinned, table_rows, topic_rows
from cdc.lab.proof.topic_side import read_topics
from tests.integration.living.conftest import Living
from tests.integration.living.waiting import wait_equal
from tests.support.deployment import Deploy, Deployment
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.waiting import eventually

both = pytest.mark.pg(16, 18, since=15)  # row filters and column lists came with PostgreSQL 15

NAME = 'Theirs, "quoted" too'
SETUP = """
CREATE TABLE filtered (id integer PRIMARY KEY, region text NOT NULL, note text);
CREATE UNIQUE INDEX filtered_key ON filtered (id, region);
ALTER TABLE filtered REPLICA IDENTITY USING INDEX filtered_key;
INSERT INTO filtered SELECT i, CASE i % 2 WHEN 0 THEN 'eu' ELSE 'us' END, 'before' FROM generate_series(1, 40) i;
CREATE TABLE listed (id integer PRIMARY KEY, shown text, hidden text);
INSERT INTO listed SELECT i, 's', 'secret' FROM generate_series(1, 20) i;
CREATE TABLE made (id integer PRIMARY KEY, n integer, twice integer GENERATED ALWAYS AS (n * 2) STORED);
INSERT INTO made (id, n) SELECT i, i FROM generate_series(1, 20) i;
CREATE PUBLICATION "Theirs, ""quoted"" too" FOR TABLE filtered WHERE (region = 'eu'), listed (id, shown), made
"""


@pytest.fixture(scope="module")
def live(living: Living, pg_major: int) -> Deployment:
    generated = " WITH (publish_generated_columns = stored)" if pg_major >= 18 else ""
    return living(SETUP + generated, {"publication": NAME, "publication_mode": "disabled"})


def shape_of(live: Deployment, table: str, *columns: str) -> TableShape:
    """The table, with only these columns."""
    with pinned(live.source.dsn) as source:
        shape = describe(source, table)
    return TableShape(table, tuple(each for each in shape.columns if each.name in columns), shape.key)


@both
def test_a_row_that_leaves_or_enters_the_filter(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("INSERT INTO filtered VALUES (101, 'eu', 'in'), (102, 'us', 'out')")
        connection.execute("UPDATE filtered SET region = 'us' WHERE id IN (2, 4)")  # leave
        connection.execute("UPDATE filtered SET region = 'eu' WHERE id IN (1, 3)")  # enter
        connection.execute("UPDATE filtered SET note = 'changed' WHERE id IN (5, 6)")
        connection.execute("DELETE FROM filtered WHERE id IN (7, 8)")
        connection.execute("UPDATE filtered SET id = id + 1000 WHERE id IN (9, 10)")
    wanted = "SELECT id, region, note FROM filtered WHERE region = 'eu' ORDER BY id"
    live.wait_mirrored()
    eventually(
        lambda: live.replica.execute("SELECT * FROM filtered ORDER BY id") == live.source.execute(wanted),
        message=lambda: live.bridge.tail() + live.sink.tail(),
    )
    with pinned(live.source.dsn) as source:
        shape = describe(source, "public.filtered", ("id",))
        rows = {key: row for key, row in table_rows(source, shape).items() if row[1] == b"eu"}
    topic = live.topic("public.filtered")
    assert topic_rows(read_topics(live.bootstrap, [topic])[topic].live, shape) == rows


@both
def test_a_column_list(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("INSERT INTO listed VALUES (21, 'new', 'secret')")
        connection.execute("UPDATE listed SET shown = 'changed', hidden = 'secret' WHERE id = 1")
        connection.execute("UPDATE listed SET hidden = 'secret too' WHERE id = 2")
        connection.execute("DELETE FROM listed WHERE id = 3")
    wait_equal(live, shape_of(live, "public.listed", "id", "shown"))
    assert all(b"secret" not in (record.value or b"") for record in live.records("public.listed"))


@both
def test_generated_columns(live: Deployment, pg_major: int) -> None:
    """Published from PostgreSQL 18 on, when the publication says so; else they are no part of topic and replica."""
    with live.source.connect() as connection:
        connection.execute("INSERT INTO made VALUES (21, 21)")
        connection.execute("UPDATE made SET n = 100 WHERE id = 1")
        connection.execute("DELETE FROM made WHERE id = 2")
    if pg_major >= 18:
        live.wait_mirrored()
        wanted = live.source.execute("SELECT id, n, twice FROM made ORDER BY id")
        eventually(
            lambda: live.replica.execute("SELECT id, n, twice FROM made ORDER BY id") == wanted,
            message=lambda: live.bridge.tail() + live.sink.tail(),
        )
    else:
        wait_equal(live, "public.made")


@pytest.mark.pg(since=15)
def test_tables_of_whole_schemas(database: Database, deploy: Deploy) -> None:
    database.execute(
        "CREATE SCHEMA ours; CREATE TABLE ours.one (id integer PRIMARY KEY); INSERT INTO ours.one VALUES (1);"
        "CREATE TABLE outside (id integer PRIMARY KEY); CREATE PUBLICATION whole FOR TABLES IN SCHEMA ours"
    )
    deployment = deploy(source={"tables": ["ours.*"], "publication": "whole", "publication_mode": "disabled"})
    deployment.start()
    database.execute("INSERT INTO ours.one VALUES (2); CREATE TABLE ours.later (id integer PRIMARY KEY)")
    database.execute("INSERT INTO ours.later VALUES (1); INSERT INTO outside VALUES (1)")
    wait_equal(deployment, "ours.one", "ours.later")
    deployment.stop()


@pytest.mark.pg(since=15)
def test_publications_that_would_lose_something_are_refused(database: Database, deploy: Deploy) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY, note text, more text)")
    deployment = deploy(source={"publication": "theirs", "publication_mode": "disabled"})

    def refusal() -> str:
        deployment.bridge.start()
        return deployment.bridge.refusal(SourceRefused.exit_code)

    database.execute("CREATE PUBLICATION theirs FOR TABLE items WITH (publish = 'insert, update')")
    said = refusal()
    assert "publication theirs leaves out delete, truncate: the topics would not follow the tables" in said
    assert "ALTER PUBLICATION \"theirs\" SET (publish = 'insert, update, delete, truncate');" in said
    database.execute("DROP PUBLICATION theirs; CREATE PUBLICATION theirs FOR TABLE items (note)")
    said = refusal()
    assert "has a column list for public.items without id, which identify its rows" in said
    remedy = said.split("remedy: ")[1].splitlines()[0]
    assert 'ADD TABLE "public"."items" ("id", "note");' in remedy
    database.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    assert "has a column list for public.items without id, more, which identify its rows" in refusal()
    database.execute("ALTER TABLE items REPLICA IDENTITY DEFAULT")
    database.execute(remedy)
    deployment.start()
    database.execute("INSERT INTO items VALUES (1, 'shown', 'hidden'); UPDATE items SET note = 'x'")
    wait_equal(deployment, shape_of(deployment, "public.items", "id", "note"))
    deployment.stop()


@both
@pytest.mark.parametrize("on_gap", sampled(["rebackfill", "fail"], ["rebackfill"]))
def test_a_table_that_is_published_whole_from_now_on(database: Database, deploy: Deploy, on_gap: str) -> None:
    """What ``cdc check`` prints of a filter: rows and columns that it held back come, and what went is gone."""
    database.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, a text, b text);"
        "INSERT INTO t SELECT i, 'a', 'b' FROM generate_series(1, 40) i;"
        "CREATE PUBLICATION theirs FOR TABLE t (id, a) WHERE (id <= 20)"
    )
    deployment = deploy(source={"publication": "theirs", "publication_mode": "disabled", "on_gap": on_gap})
    deployment.start()
    deployment.wait_backfilled("public.t")
    said = deployment.command("check", "--json", code=0)
    (remedy,) = [each["remedy"] for each in json.loads(said)["findings"] if "column list or row filter" in each["text"]]
    database.execute("DELETE FROM t WHERE id IN (1, 30); UPDATE t SET b = 'changed' WHERE id IN (2, 31)")
    database.execute(remedy)
    database.execute("DELETE FROM t WHERE id IN (3, 32); UPDATE t SET b = 'later' WHERE id IN (4, 33)")
    if on_gap == "fail":
        line = deployment.bridge.refusal(GapError.exit_code).partition("remedy: ")[2]
        assert "CDC_SOURCE__ON_GAP=rebackfill" in line
        deployment.settings["source"]["on_gap"] = "rebackfill"
        deployment.write()
        deployment.start_bridge()
    deployment.wait_equal("public.t")
    deployment.wait_table_equal("public.t")
