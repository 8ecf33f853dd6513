"""Columns that come, go and change, and names of every kind: what the stream does not tell, a backfill heals."""

from __future__ import annotations

import signal

import pytest

from tests.integration.living.conftest import Living
from tests.integration.living.waiting import cdc, wait_equal
from tests.support.deployment import Deployment
from tests.support.waiting import eventually

LONG = "x" * 61 + "ß"  # 63 bytes
NAMES = (
    "Mixed Case",
    "dot.ted",
    'quo"ted',
    "hy-phen",
    "naïve_表",
    "select",
    "per%cent",
    "back\\slash",
    "apo'strophe",
    LONG,
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def live(living: Living) -> Deployment:
    setup = "".join(
        f"CREATE SCHEMA {quoted('S ' + name[:60])};"
        f"CREATE TABLE {quoted('S ' + name[:60])}.{quoted(name)} (id integer PRIMARY KEY, {quoted(name)} text);"
        f"INSERT INTO {quoted('S ' + name[:60])}.{quoted(name)} VALUES (1, 'before');"
        for name in NAMES
        if "." not in name and name != LONG
    )
    setup += "".join(
        f"CREATE TABLE {quoted(name)} ({quoted(name)} integer PRIMARY KEY, n integer);"
        f"INSERT INTO {quoted(name)} VALUES (1);"
        for name in NAMES
    )
    shapes = """
        CREATE TABLE shaped (id integer PRIMARY KEY, a text, n integer, big text);
        INSERT INTO shaped SELECT i, 'a' || i, i, repeat('x', 10) FROM generate_series(1, 30) i;
    """
    return living(setup + shapes, {"tables": ["*.*"]})


def test_names_of_every_kind(live: Deployment) -> None:
    tables = []
    for name in NAMES:
        table = quoted(name)
        live.source.execute(f"INSERT INTO {table} VALUES (2, 2); UPDATE {table} SET n = 1 WHERE {table} = 1")
        tables.append(f"public.{name}")
        if "." not in name and name != LONG:
            schema = "S " + name[:60]
            live.source.execute(f"UPDATE {quoted(schema)}.{table} SET {table} = 'after'")
            tables.append(f"{schema}.{name}")
    wait_equal(live, *tables)
    assert len({live.topic(table) for table in tables}) == len(tables)


def wait_said_again(live: Deployment, words: str, before: int) -> None:
    eventually(lambda: live.bridge.said().count(words) > before, 30, live.bridge.tail)


def test_a_table_that_changes_its_shape_and_no_row_is_told(live: Deployment) -> None:
    """The stream would say so with the next change, which may never come."""
    live.source.execute("CREATE TABLE quiet (id integer PRIMARY KEY, n integer); INSERT INTO quiet VALUES (1, 1)")
    live.bridge.signal(signal.SIGHUP)
    live.bridge.wait_said('"tables": ["public.quiet"]')
    live.wait_equal("public.quiet")
    for change, told in (
        ("ADD COLUMN later text DEFAULT 'everywhere'", "added: later"),
        ("RENAME COLUMN n TO number", "renamed: n → number; added: later"),
        ("ALTER COLUMN number TYPE bigint", "renamed: n → number; added: later; of another type: number (int4 → int8)"),
    ):
        words = f'"change": "{told}"'
        before = live.bridge.said().count(words)
        live.source.execute(f"ALTER TABLE quiet {change}")
        live.bridge.signal(signal.SIGHUP)  # it looks every ten seconds, and now
        wait_said_again(live, words, before)
    assert '"remedy": "cdc backfill public.quiet"' in live.bridge.said()
    assert "done" in cdc(live, "backfill", "public.quiet")
    live.wait_equal("public.quiet")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ADD COLUMN plain integer", "added: plain"),
        ("ADD COLUMN defaulted text DEFAULT 'not rewritten'", "added: defaulted"),
        ("ADD COLUMN rolled double precision DEFAULT random()", "added: rolled"),  # rewrites the table
        ("ADD COLUMN made text GENERATED ALWAYS AS (a || '!') STORED", ""),
        ("RENAME COLUMN a TO b", "renamed: a → b"),
        ("DROP COLUMN big, ADD COLUMN big text DEFAULT 'at the end'", "dropped and added again: big"),
        ("ALTER COLUMN n TYPE bigint USING n * 10", "of another type: n (int4 → int8)"),  # rewrites, too
        ("ALTER COLUMN n TYPE text USING 'n' || n", "of another type: n (int8 → text)"),
        ("DROP COLUMN plain", "dropped: plain"),
        ("ALTER COLUMN made DROP EXPRESSION", "added: made"),
    ],
)
def test_a_column_changes_and_a_backfill_heals_the_rows_that_do_not(live: Deployment, change: str, told: str) -> None:
    live.wait_backfilled()
    with live.source.connect() as connection:
        connection.execute(f"ALTER TABLE shaped {change}".encode())
        connection.execute("UPDATE shaped SET id = id WHERE id = 1")
    live.wait_published()
    assert told in live.bridge.said()
    if "GENERATED" not in change:
        assert "cdc backfill public.shaped" in live.bridge.said()
    assert "done" in cdc(live, "backfill", "public.shaped")
    if change.endswith("USING n * 10"):
        live.sink.wait_said("column 'n' of replica table public.shaped has type integer")
        live.replica.execute("ALTER TABLE shaped ALTER COLUMN n TYPE text")
        live.sink.stop()
        live.sink.start()
    live.wait_mirrored()
    live.wait_table_equal("public.shaped")
    wait_equal(live, "public.shaped")
