"""``"a.b"."c"`` beside ``"a"."b.c"``: two tables, which had one name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.topic_keys import TopicKeys
from cdc.contract.naming import topic_name
from cdc.topics.lookup.record import of_table
from tests.integration.living.conftest import Living
from tests.integration.living.waiting import cdc, wait_equal
from tests.support.deployment import Deployment
from tests.support.topic_audit import read_records

DOTTED_SCHEMA, DOTTED_TABLE = '"a.b".c', "a.b.c"
SETUP = """
CREATE SCHEMA "a.b"; CREATE SCHEMA a;
CREATE TABLE "a.b".c (id integer PRIMARY KEY, note text);
CREATE TABLE a."b.c" (id integer PRIMARY KEY, note text);
INSERT INTO "a.b".c SELECT i, 'schema' FROM generate_series(1, 20) i;
INSERT INTO a."b.c" SELECT i, 'table' FROM generate_series(11, 30) i;
"""


@pytest.fixture(scope="module")
def live(living: Living) -> Iterator[Deployment]:
    deployment = living(SETUP, {"tables": ["*.*"]})
    yield deployment
    assert "Traceback" not in deployment.bridge.log.read_text() + deployment.sink.log.read_text()


def notes(live: Deployment, namespace: str, name: str) -> set[str]:
    """What the topic of a table says of its rows."""
    records = read_records(live.bootstrap, [topic_name(live.name, namespace, name)])
    rows = [of_table(each, ValueOpener([]), TopicKeys([])).row for each in records if each.value is not None]
    return {json.loads(row)["note"] for row in rows if row is not None}


def get(live: Deployment, *arguments: str) -> str:
    """What ``cdc get`` prints, on either stream."""
    ran = CliRunner().invoke(app, ["get", *arguments, "-c", str(live.config)])
    return f"{ran.stdout}{ran.stderr}"


def test_each_has_its_own_rows_in_its_topic_and_in_the_replica(live: Deployment) -> None:
    wait_equal(live, DOTTED_SCHEMA, DOTTED_TABLE)
    live.source.execute("""
        INSERT INTO "a.b".c VALUES (0, 'schema'); INSERT INTO a."b.c" VALUES (0, 'table');
        DELETE FROM "a.b".c WHERE id = 15; UPDATE a."b.c" SET note = 'table' WHERE id = 15;
    """)
    wait_equal(live, DOTTED_SCHEMA, DOTTED_TABLE)
    assert notes(live, "a.b", "c") == {"schema"}
    assert notes(live, "a", "b.c") == {"table"}
    assert live.backfills().keys() >= {DOTTED_SCHEMA, DOTTED_TABLE}
    published = "SELECT schemaname, tablename FROM pg_publication_tables ORDER BY 1"
    assert live.source.execute(published) == [("a", "b.c"), ("a.b", "c")]


def test_commands_tell_them_apart(live: Deployment) -> None:
    wait_equal(live, DOTTED_SCHEMA, DOTTED_TABLE)
    listed = {each["table"]: each["topic"] for each in json.loads(cdc(live, "tables", "list", "--json"))}
    assert listed[DOTTED_SCHEMA] == topic_name(live.name, "a.b", "c")
    assert listed[DOTTED_TABLE] == topic_name(live.name, "a", "b.c")
    assert '"schema"' in get(live, DOTTED_SCHEMA, "1")
    assert '"schema"' in get(live, '"a.b"."c"', "1")
    assert '"table"' in get(live, DOTTED_TABLE, "30")
    assert '"table"' in get(live, 'a."b.c"', "30")
    assert "ends with a quote and a dot" in get(live, '"a.b', "1")
    assert json.loads(cdc(live, "connect-schema", DOTTED_SCHEMA))["name"] == topic_name(live.name, "a.b", "c")


def test_a_schema_with_a_dot_is_named_in_quotes(live: Deployment) -> None:
    """Whoever leaves them out is told, where the name leads nowhere else."""
    live.source.execute('CREATE SCHEMA "my.own"; CREATE TABLE "my.own".t (id integer PRIMARY KEY, note text)')
    live.source.execute("INSERT INTO \"my.own\".t VALUES (1, 'mine')")
    live.bridge.wait_said('"tables join"')
    wait_equal(live, '"my.own".t')
    assert "write '\"my.own\".t': its schema has a dot" in get(live, "my.own.t", "1")
    assert '"mine"' in get(live, '"my.own".t', "1")
