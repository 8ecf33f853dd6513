"""``cdc check``: each thing that goes wrong is named, and gone when the remedy was carried out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner, Result

from cdc.base.config import Config
from cdc.bridge.scope.choice import choose
from cdc.bridge.source.catalog import find_tables
from cdc.bridge.source.connect import connect
from cdc.bridge.source.grants import Capture, capture_grants
from cdc.bridge.source.preflight import Finding
from cdc.cli.check_command import as_lines, check
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.lab.stack.binaries import find_binaries
from cdc.lab.stack.embedded import free_port
from cdc.ops.status.checks import check_kafka, check_source
from cdc.ops.status.checkup import check_replica
from tests.integration.ops.status.preflighting import config, findings, mend, troubles
from tests.support.printed_steps import paste, shell
from tests.support.servers import Database, fresh_database


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with connect({"conninfo": database.dsn}, application_name="test") as connection:
        connection.execute("create table public.t (id int primary key)")
        yield connection


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"plain_{database.name}"
    database.execute(f"create role {name} login")
    yield name
    database.execute(f"drop owned by {name}")
    database.execute(f"drop role {name}")


def run_check(path: Path, document: dict[str, Any], *options: str) -> Result:
    file = path / "cdc.yaml"
    file.write_text(yaml.safe_dump(document))
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, ["-c", str(file), *options])


def test_role_with_no_rights_gets_every_command(database, conn, role):
    dsn = f"{database.dsn}?user={role}"
    conn.execute("create schema sales create table o (id int primary key)")

    found = troubles(findings(dsn, tables=["public.t", "sales.o"]))

    assert found[f"role {role}"].remedy == f'ALTER ROLE "{role}" REPLICATION;'
    assert found["table public.t"].remedy == f'GRANT SELECT ON "public"."t" TO "{role}";'
    assert "GRANT USAGE ON SCHEMA" in found["table sales.o"].remedy
    publication = found["publication cdc_shop"]
    assert publication.remedy.startswith('CREATE PUBLICATION "cdc_shop" FOR TABLE ONLY "public"."t"')
    for finding in found.values():
        mend(conn, finding)
    assert troubles(findings(dsn, tables=["public.t", "sales.o"])) == {}

    # now the publication is another's, and other tables are wanted
    altered = troubles(findings(dsn, tables=["public.t"]))["publication cdc_shop"]
    assert "does not own" in altered.text
    mend(conn, altered)
    assert troubles(findings(dsn, tables=["public.t"])) == {}


def test_a_table_without_a_key_that_a_pattern_reaches_asks_for_nothing(database, conn, role):
    """It is left out: check warns, the grants give nothing of it, and the bridge starts without it."""
    conn.execute("create schema bare create table keyless (n int)")
    conn.execute("create table public.notes (note text)")
    source = {"dsn": f"{database.dsn}?user={role}"}
    document: dict[str, Any] = {"name": "shop", "source": source, "kafka": {"bootstrap": "127.0.0.1:1"}}
    loaded = Config.model_validate(document | {"source": source | {"tables": ["*.*"]}})
    tables = find_tables(conn, loaded.source.tables, (), {})
    lines = capture_grants(Capture(role, database.name, tables, True, (), "cdc_shop", "filtered", None))
    assert "GRANT SELECT" in "\n".join(lines)
    assert not [line for line in lines if ("notes" in line or "bare" in line) and not line.startswith("--")]
    conn.execute("\n".join(lines).encode())

    found = {each.subject: each for each in check_source(loaded)[0]}
    assert [each.subject for each in found.values() if each.level == "FAIL"] == []
    for table in ("table bare.keyless", "table public.notes"):
        assert found[table].level == "WARN"
        assert found[table].text.endswith("it is left out")
    with connect({"conninfo": f"{database.dsn}?user={role}"}, application_name="test") as reader:
        assert [each.name for each in choose(reader, loaded, before=None).tables] == ["t"]

    named = Config.model_validate(document | {"source": source | {"tables": ["public.t", "public.notes"]}})
    assert {each.subject: each.level for each in check_source(named)[0]}["table public.notes"] == "FAIL"


def test_no_key_at_all_still_makes_sql(database, conn):
    conn.execute("create table public.notes (note text)")
    tables = find_tables(conn, ["public.notes"], (), {})
    lines = capture_grants(Capture("r", database.name, tables, True, (), "cdc_shop", "filtered", None))
    assert not [line for line in lines if line.startswith(("GRANT SELECT", "CREATE PUBLICATION"))]
    assert lines[-1] == "-- so there is nothing to read or to publish yet"


def test_one_pasted_line_gives_all_missing_rights(tmp_path, database, conn):
    """The role is not there yet: what check prints at its end is pasted as it stands, and the role is ready."""
    name = f"new {database.name}"
    dsn = make_conninfo(database.dsn, user=name)
    document = {
        "name": database.name,
        "source": {"dsn": dsn, "tables": ["public.*"]},
        "kafka": {"bootstrap": "127.0.0.1:1"},
    }
    document["source"]["publication_mode"] = "disabled"
    shown = run_check(tmp_path, document).output
    line = next(each for each in shown.splitlines() if each.startswith("cdc grants source -c"))
    psql = find_binaries(16)
    try:
        paste(line, tmp_path, shell(psql.home / psql.programs))
        found, _ = check_source(Config.model_validate(document))
        assert [each for each in found if each.level == "FAIL"] == []
        assert "cdc grants" not in run_check(tmp_path, document).output
    finally:
        quoted_name = sql.Identifier(name)
        conn.execute(sql.SQL("DROP OWNED BY {}; DROP ROLE {}").format(quoted_name, quoted_name))


def test_all_tables_wants_a_superuser(database, conn, role):
    conn.execute(f"alter role {role} replication; grant select on public.t to {role}")
    wanted = {"publication_mode": "all_tables"}
    failure = troubles(findings(f"{database.dsn}?user={role}", **wanted))["publication cdc_shop"]
    assert "not a superuser" in failure.text
    mend(conn, failure)
    assert troubles(findings(f"{database.dsn}?user={role}", **wanted)) == {}


def test_rows_hidden_by_a_policy(database, conn, role):
    conn.execute(f"alter role {role} replication; grant select on public.t to {role}")
    conn.execute("create publication cdc_shop for table public.t with (publish_via_partition_root)")
    conn.execute("alter table public.t enable row level security")
    failure = troubles(findings(f"{database.dsn}?user={role}"))["table public.t"]
    assert "row-level security" in failure.text
    mend(conn, failure)
    assert troubles(findings(f"{database.dsn}?user={role}")) == {}


def test_relations_that_cannot_be_captured_are_refused_by_name(database, conn):
    conn.execute("create view public.seen as select 1 as id")
    conn.execute("create unlogged table public.scratch (id int primary key)")
    conn.execute("create table public.parted (id int primary key) partition by range (id)")
    conn.execute("create table public.parted_1 partition of public.parted for values from (0) to (9)")
    conn.execute("create foreign data wrapper nowhere; create server far foreign data wrapper nowhere")
    conn.execute("create foreign table public.remote (id int) server far")
    named = ["public.t", "public.seen", "public.scratch", "public.parted_1", "public.remote", "public.nope"]

    found = troubles(findings(database.dsn, tables=named))

    assert found["relation public.seen"].text == "is a view, which logical replication does not carry"
    assert found["relation public.remote"].text == "is a foreign table, which logical replication does not carry"
    assert found["relation public.parted_1"].remedy == "name public.parted in source.tables instead"
    assert found["source.tables public.nope"].text == "matches no table"
    mend(conn, found["relation public.scratch"])
    assert troubles(findings(database.dsn, tables=["public.t", "public.scratch", "public.parted"])) == {}


def test_wildcard_passes_over_views_and_warns_of_unlogged_tables(database, conn):
    conn.execute("create view public.seen as select 1 as id")
    conn.execute("create unlogged table public.scratch (id int primary key)")
    found = findings(database.dsn, tables=["public.*", "sales.*"])
    assert troubles(found) == {}
    warnings = troubles(found, "WARN")
    assert set(warnings) == {"relation public.scratch", "source.tables sales.*"}
    mend(conn, warnings["relation public.scratch"])
    assert set(troubles(findings(database.dsn), "WARN")) == set()


def test_nothing_to_capture_fails(database):
    assert troubles(findings(database.dsn))["source.tables public.*"].text == "matches no table"


def test_warnings_that_have_a_remedy_end_with_it(database, conn):
    conn.execute("create table public.doc (id int primary key, body text)")
    conn.execute("create table public.loose (a int, b int); alter table public.loose replica identity full")
    conn.execute("create table public.parted (id int primary key, body text) partition by range (id)")
    conn.execute("create table public.parted_1 partition of public.parted for values from (0) to (9)")
    for table in ("doc", "parted", "parted_1"):
        conn.execute(f"alter table public.{table} alter body set storage external")
    for table in ("doc", "parted"):
        conn.execute(f"insert into public.{table} values (1, repeat('large', 2000))")
    source = {"tables": ["public.*"], "keys": {"public.loose": ["a", "b"]}}

    warnings = [each for each in findings(database.dsn, **source) if each.level == "WARN"]

    assert [each.subject for each in warnings] == [
        "table public.doc",
        "table public.loose",
        "table public.parted",
        "table public.parted",
    ]
    assert "large values of body" in warnings[0].text
    assert "unique" in warnings[1].text
    assert "TRUNCATE, DETACH or DROP" in warnings[3].text
    for warning in warnings[:3]:
        mend(conn, warning)
    left = [each for each in findings(database.dsn, **source) if each.level != "OK"]
    assert left == [warnings[3]]


@pytest.mark.pg(18, since=18)
def test_slot_that_idleness_would_end(database, conn):
    conn.execute("alter system set idle_replication_slot_timeout = '1d'")
    conn.execute("select pg_reload_conf()")
    with connect({"conninfo": database.dsn}, application_name="test") as fresh:
        assert fresh.execute("show idle_replication_slot_timeout").fetchone() == ("1d",)
    warning = troubles(findings(database.dsn), "WARN")["idle_replication_slot_timeout"]
    assert "down for 1d" in warning.text
    mend(conn, warning)
    assert troubles(findings(database.dsn), "WARN") == {}
    conn.execute("alter system reset idle_replication_slot_timeout")


def test_topic_name_over_249_characters(database, conn, kafka):
    long = "ü" * 31
    conn.execute(f'create schema "{long}" create table "{long}" (id int primary key)')
    tables = find_tables(conn, [f"{long}.*"], [], {})
    asked = config(database.dsn, kafka=kafka.bootstrap, name=database.name)

    failure = troubles(check_kafka(asked, tables))[f"table {long}.{long}"]

    assert "Kafka allows 249" in failure.text
    assert "topics.names" in failure.remedy
    shorter = {"names": {f"{long}.{long}": f"{database.name}_umlauts"}}
    asked = config(database.dsn, kafka=kafka.bootstrap, name=database.name, topics=shorter)
    assert troubles(check_kafka(asked, tables)) == {}


def test_topic_drift(database, conn, kafka):
    name = database.name
    admin = TopicAdmin(BrokerAdmin({"bootstrap.servers": kafka.bootstrap}))
    admin.create_missing(
        [
            TopicSpecification(f"{name}.public.t", 2, 1, {"cleanup.policy": "delete"}),
            TopicSpecification(f"{name}.__progress", 1, 1, {"cleanup.policy": "compact"}),
        ]
    )
    tables = find_tables(conn, ["public.t"], [], {})

    found = check_kafka(config(database.dsn, kafka=kafka.bootstrap, name=name), tables)

    drift = {each.text: each for each in found if each.subject == f"topic {name}.public.t"}
    assert drift["has cleanup.policy=delete, the configuration says compact"].level == "FAIL"
    assert drift["has partitions=2, the configuration says 4"].level == "FAIL"
    assert any(each.level == "WARN" for each in drift.values())
    assert all(each.remedy for each in drift.values())
    assert Finding("OK", f"topic {name}.__schemas", "will be created with 1 partitions") in found


def test_a_lag_that_leaves_a_sink_catching_up(database, conn, kafka):
    name, state = database.name, f"{database.name}.public.t"
    topic = TopicSpecification(state, 4, 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": "12000"})
    TopicAdmin(BrokerAdmin({"bootstrap.servers": kafka.bootstrap})).create_missing([topic])
    tables = find_tables(conn, ["public.t"], [], {})

    def warned(lag_ms: int) -> dict[str, str]:
        document = config(
            database.dsn, kafka=kafka.bootstrap, name=name, topics={"min_compaction_lag_ms": lag_ms, "partitions": 4}
        )
        return {
            each.subject: each.text
            for each in check_kafka(document, tables)
            if each.level == "WARN" and "catching_up" in each.text
        }

    usual, short = warned(60_000), warned(5_000)
    assert list(usual) == [f"topic {state}"]
    assert usual[f"topic {state}"].startswith(
        "has min.compaction.lag.ms=12000, the configuration says 60000: a sink that is more than 2 s behind cannot tell"
    )
    assert sorted(short) == [f"topic {state}", "topics.min_compaction_lag_ms"]
    assert short["topics.min_compaction_lag_ms"].startswith("is 5000: a sink that is more than 0 s behind cannot tell")


def test_brokers_down_is_a_finding(database):
    found = troubles(check_kafka(config(database.dsn, kafka=f"127.0.0.1:{free_port()}"), []))
    assert "kafka.bootstrap" in found["brokers"].remedy


@pytest.mark.parametrize(
    ("delivery", "said"),
    [("transactional", "together with the progress"), ("idempotent", "may see part of a source transaction")],
)
def test_what_the_delivery_gives_up_is_said(delivery: str, said: str) -> None:
    asked = config("postgresql://u@127.0.0.1/d", kafka=f"127.0.0.1:{free_port()}", delivery=delivery)
    found = next(each for each in check_kafka(asked, []) if each.subject == "delivery")
    assert (found.level, found.remedy) == ("OK", "")
    assert found.text.startswith(f"{delivery}: ")
    assert said in found.text


def test_source_down_is_a_finding(database):
    found, tables = check_source(config(f"postgresql://u@127.0.0.1:{free_port()}/d"))
    assert set(troubles(found)) == {"connection"}
    assert tables == ()


def test_replica_rights(database, conn, role, postgres):
    tables = find_tables(conn, ["public.t"], [], {})
    with fresh_database(postgres) as replica, replica.connect() as superuser:
        superuser.execute("create table public.t (id int primary key)")
        superuser.execute("revoke create on schema public from public")  # as it is from PostgreSQL 15 on
        asked = config(database.dsn, sink={"dsn": f"{replica.dsn}?user={role}"})

        found = troubles(check_replica(asked, tables))

        assert found["schema cdc"].remedy == (
            f'CREATE SCHEMA IF NOT EXISTS "cdc"; GRANT USAGE, CREATE ON SCHEMA "cdc" TO "{role}";'
        )
        assert found["schema public"].remedy == f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{role}";'
        assert found["table public.t"].remedy == f'ALTER TABLE "public"."t" OWNER TO "{role}";'
        for finding in found.values():
            mend(superuser, finding)
        assert troubles(check_replica(asked, tables)) == {}
        superuser.execute(f"drop owned by {role}")

        refused = config(database.dsn, sink={"dsn": f"{replica.dsn}?user=no_such_role"})
        assert "no_such_role" in troubles(check_replica(refused, tables))["connection"].text


def test_names_of_tables_that_are_not_captured(database, conn, postgres):
    tables = find_tables(conn, ["public.t"], [], {})
    with fresh_database(postgres) as replica:
        named = {"tables": {"public.T": "public.x"}, "quarantine": {"public.t": {}, "public.u": {}}}
        found = troubles(check_replica(config(database.dsn, sink={"dsn": replica.dsn, **named}), tables), "WARN")
        assert "public.T is not captured" in found["sink.tables"].text
        assert "public.u is not captured" in found["sink.quarantine"].text


def test_replica_that_would_capture_itself(database, conn):
    tables = find_tables(conn, ["public.t"], [], {})
    for sink in ({}, {"prefix": "copy_of_"}):
        asked = config(database.dsn, sink={"dsn": database.dsn, **sink})
        assert "captured itself" in troubles(check_replica(asked, tables))["table public.t"].text
    asked = config(database.dsn, sink={"dsn": database.dsn, "schema": "mirror"})
    assert troubles(check_replica(asked, tables)) == {}


def test_command_says_ready(tmp_path, database, conn, kafka):
    document = {
        "name": database.name,
        "source": {"dsn": database.dsn},
        "kafka": {"bootstrap": kafka.bootstrap},
        "sink": {"dsn": database.dsn, "schema": "mirror"},
    }
    plain = run_check(tmp_path, document)
    assert plain.exit_code == 0, plain.output
    assert "0 FAIL: ready to run" in plain.output
    assert f"OK    source  publication cdc_{database.name}: will be made" in plain.output

    report = json.loads(run_check(tmp_path, document, "--json").output)
    assert report["ok"] is True
    assert {each["part"] for each in report["findings"]} == {"cdc", "source", "kafka", "sink"}


def test_command_fails_with_exit_code_3_and_the_remedy(tmp_path, database, conn, kafka):
    conn.execute("create table public.keyless (v text); create table public.keyed (id int primary key)")
    document = {
        "name": database.name,
        "source": {"dsn": database.dsn, "tables": ["public.keyless", "public.*"]},
        "kafka": {"bootstrap": kafka.bootstrap},
    }
    plain = run_check(tmp_path, document)
    assert plain.exit_code == 3
    assert "FAIL  source  table public.keyless: has no primary key" in plain.output
    assert '  remedy: ALTER TABLE "public"."keyless"' in plain.output
    report = json.loads(run_check(tmp_path, document, "--json").output)
    assert report["ok"] is False

    del document["source"]["tables"]  # by default a pattern, which leaves it out
    beside = run_check(tmp_path, document)
    assert beside.exit_code == 0, beside.output
    assert "WARN  source  table public.keyless: has no primary key" in beside.output
    assert conn.execute("select count(*) from pg_publication").fetchone() == (0,)


def test_lines_of_plain_output():
    parts = {"source": [Finding("OK", "a", "fine"), Finding("WARN", "b", "hm", "DO IT;")], "kafka": []}
    assert as_lines(parts) == [
        "OK    source  a: fine",
        "WARN  source  b: hm",
        "              remedy: DO IT;",
        "1 OK, 1 WARN, 0 FAIL: ready to run",
    ]
