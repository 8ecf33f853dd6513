"""Values in Avro, with schemas in a real registry: what each change becomes, and what the registry can do to a bridge.

The oracle reads the topics as a foreign reader does: fastavro, with the schema that the registry has.
"""

from __future__ import annotations

import json
import urllib.request
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from cdc.contract.formats.opener import ValueOpener
from cdc.contract.naming import schemas_topic, subject
from cdc.contract.schema import parse_schema
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.definitions import read_definitions
from cdc.lab.stack import RegistryServer
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.topics.history.reading import assert_history, parsed
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database, OwnStack
from tests.support.topic_audit import read_records
from tests.support.type_matrix import matrix_tables
from tests.support.waiting import eventually

_JSON = "application/vnd.schemaregistry.v1+json"


def ids(deployment: Deployment, table: str) -> list[int]:
    """The schema ids of a table's values, in the order of their records; each value begins with one."""
    values = [record.value for record in deployment.records(table) if record.value is not None]
    assert all(value[:1] == b"\0" for value in values)
    return [int.from_bytes(value[1:5], "big") for value in values]


def be_compatible(registry: RegistryServer, name: str, mode: str) -> None:
    """Set the compatibility mode of a subject."""
    body = json.dumps({"compatibility": mode}).encode()
    request = urllib.request.Request(f"{registry.url}/config/{name}", body, {"Content-Type": _JSON}, method="PUT")
    urllib.request.urlopen(request, timeout=30).close()


def test_every_type_in_avro(deploy: Deploy, database: Database, replica: Database, registry: RegistryServer) -> None:
    deployment = deploy_in("avro", deploy, registry, topics={"partitions": 1, "beyond": "text"})
    with prepare(database) as connection:
        prepare(replica).close()
        tables = matrix_tables(connection)
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
        assert all(len(set(ids(deployment, name))) == 1 for name in names)


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_a_column_more_is_a_version_more(
    deploy: Deploy, database: Database, registry: RegistryServer, delivery: str
) -> None:
    """A row is never readable before the definition that names its schema, with either delivery."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    deployment = deploy_in("avro", deploy, registry)
    deployment.deliver(delivery)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    database.execute("ALTER TABLE t ADD COLUMN b numeric(6,2)")
    database.execute("INSERT INTO t VALUES (3, 'y', 1.10)")
    database.execute("UPDATE t SET id = 4 WHERE id = 1")
    database.execute("DELETE FROM t WHERE id = 2")
    deployment.wait_mirrored()
    assert len(set(ids(deployment, "public.t"))) == 2
    database.execute("UPDATE t SET b = 0")
    deployment.assert_equal("public.t")
    with urllib.request.urlopen(f"{registry.url}/subjects/{subject(deployment.topic('public.t'))}/versions") as answer:
        assert len(json.loads(answer.read())) == 2


def test_a_change_that_the_registry_refuses_stops_its_table_alone(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    database.execute("CREATE TABLE other (id integer PRIMARY KEY)")
    deployment = deploy_in("avro", deploy, registry)
    be_compatible(registry, subject(deployment.topic("public.t")), "BACKWARD")
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 1)")
    deployment.wait_mirrored()
    database.execute("ALTER TABLE t ALTER COLUMN a TYPE text")
    database.execute("INSERT INTO t VALUES (2, 'x')")
    database.execute("INSERT INTO other VALUES (1)")
    deployment.bridge.wait_said("cannot be registered")
    deployment.wait_mirrored()
    deployment.assert_equal("public.other")
    assert {record.key for record in deployment.records("public.t")} == {b'{"id":1}'}
    said = deployment.command("check", code=3)
    assert f"does not fit subject {subject(deployment.topic('public.t'))}" in said
    be_compatible(registry, subject(deployment.topic("public.t")), "NONE")
    deployment.wait_equal("public.t", "public.other")


def test_a_registry_that_is_away_keeps_only_new_schemas_waiting(
    deploy: Deploy, database: Database, own_stack: OwnStack
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    own_registry = own_stack.registry()
    deployment = deploy_in("avro", deploy, own_registry)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 1)")
    deployment.assert_equal("public.t")
    own_registry.stop()
    database.execute("INSERT INTO t VALUES (2, 2)")
    deployment.wait_mirrored()
    deployment.bridge.stop()
    deployment.start_bridge()  # what it needs to know is in the schemas topic
    database.execute("INSERT INTO t VALUES (3, 3)")
    database.execute("CREATE TABLE late (id integer PRIMARY KEY)")
    database.execute("INSERT INTO late VALUES (1)")
    deployment.wait_mirrored()
    assert {record.key for record in deployment.records("public.t")} == {b'{"id":%d}' % n for n in (1, 2, 3)}
    deployment.bridge.wait_said("the schema of table public.late cannot be registered")
    own_registry.restart()
    deployment.wait_equal("public.t", "public.late")
    deployment.assert_equal("public.t", "public.late")


def test_a_history_tells_the_rows_in_json(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    """It goes on through another schema, another session, and values that their type cannot hold."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a numeric(6,2), at timestamptz)")
    deployment = deploy_in(
        "avro", deploy, registry, topics={"partitions": 1, "history": ["public.*"], "beyond": "text"}
    )
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (1, 1.50, '2026-11-27 12:00:00.5Z'), (2, 'NaN', 'infinity')")
    database.execute("ALTER TABLE t ADD COLUMN b jsonb DEFAULT 'null'")
    database.execute("UPDATE t SET a = NULL WHERE id = 1")
    deployment.wait_published()
    deployment.bridge.stop()
    database.execute("UPDATE t SET id = 3 WHERE id = 2")
    deployment.start_bridge()
    database.execute("TRUNCATE t")
    assert_history(deployment, "public.t")
    found = [each.new for each in parsed(deployment, "public.t")]
    assert {"id": "3", "a": '"NaN"', "at": '"infinity"', "b": "null"} in found
    assert all(each.value is None or each.value[:1] == b"\0" for each in deployment.records("public.t"))


def test_another_format_begins_the_topic_anew_or_is_refused(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    deployment = deploy(registry={"url": registry.url})
    deployment.start()
    database.execute("INSERT INTO t VALUES (2, 'y')")
    deployment.assert_equal("public.t")
    deployment.bridge.stop()
    deployment.settings["topics"]["formats"] = {"public.t": "avro"}
    deployment.write()
    deployment.bridge.start()
    said = deployment.bridge.refusal(3)
    assert "its values are to be written as avro now, but its topic was written as json" in said
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (3, 'z')")
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    newest = {record.key: record.value for record in deployment.records("public.t")}
    assert all(value is not None and value[:1] == b"\0" for value in newest.values())
    deployment.bridge.stop()
    del deployment.settings["topics"]["formats"]
    deployment.write()
    deployment.start_bridge()
    deployment.bridge.wait_said("backfill done")
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    # Who begins at the first offset meets the former values before the tombstones
    admin = BrokerAdmin({"bootstrap.servers": deployment.bootstrap})
    opener = ValueOpener(read_definitions(admin, schemas_topic(deployment.name)))
    values = [each.value for each in deployment.records("public.t") if each.value is not None]
    assert {orjson.loads(opener.json(each))["id"] for each in values if each[:1] == b"\0"} == {1, 2, 3}


def test_a_value_that_does_not_fit_names_its_row(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, at timestamptz)")
    deployment = deploy_in("avro", deploy, registry)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, now()), (7, 'infinity')")
    said = deployment.bridge.refusal(3)
    assert "public.t" in said
    assert "{'id': b'7'}" in said
    assert "topics.beyond" in said
    deployment.settings["topics"]["beyond"] = "text"
    deployment.write()
    be_compatible(registry, subject(deployment.topic("public.t")), "NONE")
    deployment.start_bridge()
    deployment.assert_equal("public.t")


def test_a_registry_that_lost_its_ids_is_noticed(
    deploy: Deploy, database: Database, own_stack: OwnStack, registry: RegistryServer
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    own_registry = own_stack.registry()
    deployment = deploy_in("avro", deploy, own_registry)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 1)")
    deployment.assert_equal("public.t")
    assert "its schema fits" in deployment.command("check")
    deployment.bridge.stop()
    for number in range(3):  # so that the other registry gives other ids
        _register(registry, f"{deployment.name}-{number}", {"type": "enum", "name": f"e{number}", "symbols": ["A"]})
    deployment.settings["registry"]["url"] = registry.url
    deployment.write()
    assert "values in topic" in deployment.command("check", code=3)
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (2, 2)")
    deployment.wait_published()
    deployment.bridge.wait_said("does not have a schema under its id any more")
    assert "done" in deployment.command("backfill", "public.t")
    deployment.assert_equal("public.t")
    assert "0 FAIL" in deployment.command("check")


def _register(registry: RegistryServer, name: str, schema: object) -> None:
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    request = urllib.request.Request(f"{registry.url}/subjects/{name}/versions", body, {"Content-Type": _JSON})
    urllib.request.urlopen(request, timeout=30).close()


def test_rows_are_looked_up_and_watched(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, n numeric(5,2))")
    deployment = deploy_in("avro", deploy, registry)
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (1, 'ä\"', 1.50)")
    deployment.wait_published()
    found = json.loads(deployment.command("get", "public.t", "1", "--json"))
    assert found["row"] == {"id": 1, "a": 'ä"', "n": "1.50"}
    assert "AvroConverter" in deployment.command("connect-schema", "public.t", code=2)


def test_confluents_deserializer_reads_it(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    database.execute('CREATE TABLE t (id integer PRIMARY KEY, n numeric(5,2), at timestamptz, tags text[], "a b" text)')
    deployment = deploy_in("avro", deploy, registry)
    deployment.start_bridge()
    database.execute(
        "INSERT INTO t VALUES (1, 1.50, '2026-01-02 03:04:05.6Z', '{x,NULL}', 'ä'), (2, NULL, NULL, NULL, NULL)"
    )
    deployment.wait_published()
    with SchemaRegistryClient({"url": registry.url, "timeout": 10}) as client:
        read = AvroDeserializer(client)
        records = deployment.records("public.t")
        rows = [read(each.value, SerializationContext(each.topic, MessageField.VALUE)) for each in records]
    moment = datetime(2026, 1, 2, 3, 4, 5, 600_000, UTC)
    # The first backfill may have met the rows as well
    assert {row["id"]: row for row in rows} == {
        1: {"id": 1, "n": Decimal("1.50"), "at": moment, "tags": ["x", None], "a_u20_b": "ä"},
        2: {"id": 2, "n": None, "at": None, "tags": None, "a_u20_b": None},
    }


def test_a_definition_keeps_every_schema_of_its_values(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    """A reader of ours needs no registry, whichever values the topic still has."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    deployment = deploy_in("avro", deploy, registry)
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (1, 'x')")
    deployment.wait_published()
    deployment.bridge.stop()
    deployment.settings["topics"]["beyond"] = "text"
    deployment.write()
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (2, 'y')")
    deployment.wait_published()
    topic = schemas_topic(deployment.name)
    newest = [parse_schema(each.value or b"") for each in read_records(deployment.bootstrap, [topic])][-1]
    assert {each.schema_id for each in newest.written} == set(ids(deployment, "public.t"))


def test_a_wide_table(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    """PostgreSQL's limit of columns, among them names that only differ in case, or that Avro does not allow."""
    columns = ['"A b" integer', '"a B" integer', '"a_u20_B" integer', '"1" integer']
    columns += [f"c{number} smallint" for number in range(1_594)]
    database.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {', '.join(columns)})")
    deployment = deploy_in("avro", deploy, registry)
    deployment.start()
    database.execute("INSERT INTO t SELECT i, i, i + 1, i + 2, i + 3 FROM generate_series(1, 20) i")
    deployment.assert_equal("public.t")


def test_another_strategy_of_subjects_goes_on_with_the_topic(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    """Ids on record stay valid, and the new subject begins with the topic's former schema."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    deployment = deploy_in("avro", deploy, registry)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 'x')")
    deployment.assert_equal("public.t")
    deployment.bridge.stop()
    deployment.settings["registry"] |= {"subjects": "topic-record", "context": "eu"}
    deployment.write()
    deployment.start_bridge()
    database.execute("INSERT INTO t VALUES (2, 'y')")
    deployment.wait_published()
    assert len(set(ids(deployment, "public.t"))) == 1
    database.execute("ALTER TABLE t ADD COLUMN b integer")
    database.execute("INSERT INTO t VALUES (3, 'z', 1)")
    database.execute("UPDATE t SET b = 0")
    deployment.assert_equal("public.t")
    topic = deployment.topic("public.t")
    name = quote(subject(topic, f"{deployment.name}.public.t", "topic-record", "eu"), safe="")
    with urllib.request.urlopen(f"{registry.url}/subjects/{name}/versions", timeout=30) as answer:
        assert json.loads(answer.read()) == [1, 2]
    assert "its schema fits subject :.eu:" in deployment.command("check")


def test_views_show_it(deploy: Deploy, database: Database, registry: RegistryServer, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, at timestamptz)")
    database.execute("INSERT INTO t VALUES (1, 'x', '2026-01-02 03:04:05.6Z')")
    deployment = deploy_in(
        "avro", deploy, registry, view={"store": "view", "index": {"public.t": ["a"]}}, serve={"port": 0}
    )
    deployment.start_bridge()
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        database.execute("INSERT INTO t VALUES (2, NULL, NULL)")
        lsn = str(deployment.wait_published())
        with service.client() as client:

            def row(number: int) -> Any:
                answer = client.get(f"/v1/tables/public.t/rows/{number}", params={"min_lsn": lsn})
                return answer.json() if answer.status_code == 200 else None

            assert eventually(lambda: row(1)) == {"id": 1, "a": "x", "at": "2026-01-02 03:04:05.6+00"}
            assert eventually(lambda: row(2)) == {"id": 2, "a": None, "at": None}
    finally:
        service.kill()
