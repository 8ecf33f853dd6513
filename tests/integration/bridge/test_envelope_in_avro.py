"""Debezium's envelope in Avro, with schemas in a real registry: our readers hold the table, and schemas change."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from cdc.contract.naming import subject
from cdc.lab.stack import RegistryServer
from tests.integration.bridge.test_envelope import ONE_PARTITION, fitting
from tests.integration.bridge.test_formats import be_compatible
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.topics.lookup.test_commands import told, watching
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database, OwnStack
from tests.support.type_matrix import MatrixTable, matrix_tables
from tests.support.waiting import eventually

_MODES: Final[list[dict[str, Any]]] = [
    {},
    {
        "decimal_handling_mode": "string",
        "time_precision_mode": "isostring",
        "binary_handling_mode": "hex",
        "hstore_handling_mode": "map",
    },
]


def versions(registry: RegistryServer, deployment: Deployment, table: str) -> list[int]:
    """The versions of a table's schema."""
    name = subject(deployment.topic(table))
    with urllib.request.urlopen(f"{registry.url}/subjects/{name}/versions") as answer:
        found: list[int] = json.loads(answer.read())
    return found


def without_arrays_by_name(table: MatrixTable) -> MatrixTable:
    """A type whose name begins as an array's is one to the stream, and its field in Avro holds nothing else."""
    return replace(table, columns={name: each for name, each in table.columns.items() if '"_' not in name})


@pytest.mark.parametrize(
    "modes", [_MODES[0], pytest.param(_MODES[1], marks=pytest.mark.long)], ids=["defaults", "strings"]
)
def test_every_type(
    deploy: Deploy, database: Database, replica: Database, registry: RegistryServer, modes: dict[str, Any]
) -> None:
    deployment = deploy_in("debezium in avro", deploy, registry, topics=ONE_PARTITION, debezium=modes)
    with prepare(database) as connection:
        prepare(replica).close()
        tables = [without_arrays_by_name(each) for each in fitting(matrix_tables(connection), connection)]
        names = [table.qualified for table in tables]
        for table in tables:
            table.create(connection)
            table.insert(connection)  # the backfill's
        deployment.start()
        deployment.wait_backfilled(*names)
        deployment.assert_equal(*names)
        for table in tables:
            table.update(connection)
        deployment.assert_equal(*names)
        for table in tables:
            table.delete(connection)
        deployment.assert_equal(*names)


def test_rows_are_looked_up_and_views_show_them(
    deploy: Deploy, database: Database, registry: RegistryServer, tmp_path: Path
) -> None:
    database.execute('CREATE TABLE t (id integer PRIMARY KEY, "an a" text, n numeric(5,2), at timestamptz)')
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    view = {"store": "view"}
    deployment = deploy_in("debezium in avro", deploy, registry, topics=ONE_PARTITION, view=view, serve={"port": 0})
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    database.execute("INSERT INTO t VALUES (1, 'ä\"', 1.50, '2026-01-02 03:04:05.6Z'), (2, 'x', 0, NULL)")
    database.execute("UPDATE t SET id = 3 WHERE id = 2")
    lsn = str(deployment.wait_published())
    expected = {"id": 1, "an a": 'ä"', "n": "1.50", "at": "2026-01-02 03:04:05.6+00"}
    assert json.loads(deployment.command("get", "public.t", "1", "--json"))["row"] == expected
    assert "no such row" in deployment.command("get", "public.t", "2", code=1)
    with watching("public.t", "-c", deployment.config, "--json", "--from-beginning") as watched:
        found = [told(watched) for _ in range(4)]
    assert [(each["key"]["id"], each["row"] and each["row"]["n"]) for each in found] == [
        (1, "1.50"),
        (2, "0.00"),
        (2, None),
        (3, "0.00"),
    ]
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        with service.client() as client:

            def row(number: int) -> Any:
                answer = client.get(f"/v1/tables/public.t/rows/{number}", params={"min_lsn": lsn})
                return answer.json() if answer.status_code == 200 else answer.status_code

            assert eventually(lambda: row(1)) == expected
            assert (row(2), row(3)["n"]) == (404, "0.00")
    finally:
        service.kill()


@pytest.mark.long
def test_a_change_that_the_registry_refuses_stops_its_table_alone(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer, at timestamp(3))")
    database.execute("CREATE TABLE other (id integer PRIMARY KEY)")
    deployment = deploy_in("debezium in avro", deploy, registry)
    be_compatible(registry, subject(deployment.topic("public.t")), "BACKWARD")
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 1)")
    database.execute("ALTER TABLE t ADD COLUMN b numeric(6,2)")
    database.execute("ALTER TABLE t DROP COLUMN a")
    database.execute("INSERT INTO t VALUES (2, NULL, 1.10)")
    database.execute("UPDATE t SET b = 0 WHERE id = 1")  # whose record has the former column otherwise
    deployment.assert_equal("public.t")
    assert len(versions(registry, deployment, "public.t")) == 2
    database.execute("ALTER TABLE t ALTER COLUMN at TYPE timestamp")  # which the registry would take
    database.execute("INSERT INTO t VALUES (3, now())")
    database.execute("INSERT INTO other VALUES (1)")
    deployment.bridge.wait_said("a reader with the former schema would read wrong values")
    deployment.wait_mirrored()
    deployment.assert_equal("public.other")
    assert {record.key for record in deployment.records("public.t")} == {b'{"id":1}', b'{"id":2}'}
    said = deployment.command("check", code=3)
    assert f"does not fit subject {subject(deployment.topic('public.t'))}: column at was long" in said
    be_compatible(registry, subject(deployment.topic("public.t")), "NONE")
    deployment.wait_equal("public.t", "public.other")


@pytest.mark.long
def test_two_columns_with_one_name_in_avro_leave_their_table_out(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    database.execute('CREATE TABLE t (id integer PRIMARY KEY, "a b" text, a_b text)')
    database.execute("CREATE TABLE other (id integer PRIMARY KEY)")
    deployment = deploy_in("debezium in avro", deploy, registry)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 'x', 'y')")
    database.execute("INSERT INTO other VALUES (1)")
    deployment.bridge.wait_said("columns 'a b' and 'a_b' are both 'a_b' in Avro")
    deployment.assert_equal("public.other")
    database.execute("ALTER TABLE t RENAME COLUMN a_b TO b")
    deployment.wait_equal("public.t", "public.other")


@pytest.mark.long
def test_ids_on_record_need_no_registry(deploy: Deploy, database: Database, own_stack: OwnStack) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    own_registry = own_stack.registry()
    deployment = deploy_in("debezium in avro", deploy, own_registry)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 1)")
    deployment.assert_equal("public.t")
    own_registry.stop()
    deployment.bridge.stop()
    deployment.start_bridge()
    database.execute("UPDATE t SET a = 2")
    deployment.wait_mirrored()
    assert deployment.replica.execute("SELECT a FROM t") == [(2,)]


@pytest.mark.long
def test_an_envelope_in_another_format_begins_the_topic_anew(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, n numeric(5,2))")
    database.execute("INSERT INTO t VALUES (1, 'x', 1)")
    deployment = deploy_in(
        "debezium in avro", deploy, registry, topics={"format": "json"}, source={"on_gap": "rebackfill"}
    )
    deployment.start()
    be_compatible(registry, subject(deployment.topic("public.t")), "NONE")
    for envelope, form in (("debezium", "avro"), ("plain", "avro"), ("debezium", "avro"), ("plain", "json")):
        database.execute("UPDATE t SET n = n + 1")
        deployment.assert_equal("public.t")
        deployment.bridge.stop()
        deployment.settings["topics"] |= {"envelope": envelope, "format": form}
        deployment.write()
        deployment.start_bridge()
    database.execute("UPDATE t SET n = n + 1")
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    # A reader that begins at the first offset meets rows and envelopes, in JSON and in Avro
    deployment.sink.stop()
    deployment.replica.execute("DROP SCHEMA cdc CASCADE")
    deployment.replica.execute("DROP TABLE t")
    deployment.sink.start()
    deployment.assert_equal("public.t")
