"""JSON values with a JSON Schema in a real registry: what each change becomes, and what foreign readers read.

The oracle validates each value by jsonschema_rs, with the schema that the registry has.
"""

from __future__ import annotations

import json
import urllib.request

import pytest

from cdc.contract.formats.json_schema.schema import read_schema
from cdc.contract.naming import subject
from cdc.lab.stack import RegistryServer
from tests.integration.bridge.test_formats import be_compatible, ids
from tests.integration.bridge.test_type_matrix import prepare
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.servers import Database
from tests.support.type_matrix import matrix_tables


def versions(registry: RegistryServer, deployment: Deployment, table: str) -> list[str]:
    """The schemas that the registry has of a table."""
    found = []
    name = subject(deployment.topic(table))
    with urllib.request.urlopen(f"{registry.url}/subjects/{name}/versions", timeout=30) as answer:
        numbers = json.loads(answer.read())
    for number in numbers:
        with urllib.request.urlopen(f"{registry.url}/subjects/{name}/versions/{number}", timeout=30) as answer:
            found.append(json.loads(answer.read())["schema"])
    return found


def test_every_type_with_a_schema(
    deploy: Deploy, database: Database, replica: Database, registry: RegistryServer
) -> None:
    """``topics.beyond`` stays at its default: there is nothing that JSON does not hold."""
    deployment = deploy_in("json-schema", deploy, registry, topics={"partitions": 1})
    with prepare(database) as connection:
        prepare(replica).close()
        tables = matrix_tables(connection)
        names = [table.qualified for table in tables]
        for table in tables:
            table.create(connection)
            table.insert(connection)  # the backfill's
        deployment.start()
        deployment.wait_backfilled(*names)
        for table in tables:
            table.update(connection)
        deployment.assert_equal(*names)
        for table in tables:
            table.delete(connection)
        deployment.assert_equal(*names)
        assert all(len(set(ids(deployment, name))) == 1 for name in names)


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_columns_come_and_go_in_the_usual_mode(
    deploy: Deploy, database: Database, registry: RegistryServer, delivery: str
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    deployment = deploy_in("json-schema", deploy, registry)
    be_compatible(registry, subject(deployment.topic("public.t")), "BACKWARD_TRANSITIVE")
    deployment.deliver(delivery)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    database.execute("ALTER TABLE t ADD COLUMN b numeric(6,2)")
    database.execute("INSERT INTO t VALUES (3, 'y', 1.10)")
    database.execute("ALTER TABLE t DROP COLUMN a")
    database.execute("UPDATE t SET id = 4 WHERE id = 1")
    deployment.wait_published()
    deployment.bridge.stop()
    deployment.start_bridge()  # which has to make the same schema again
    database.execute("ALTER TABLE t RENAME COLUMN b TO c")
    database.execute("UPDATE t SET c = 0")
    deployment.assert_equal("public.t")
    found = [read_schema(each) for each in versions(registry, deployment, "public.t")]
    assert [(list(each.types), list(each.dropped)) for each in found] == [
        (["id", "a"], []),
        (["id", "a", "b"], []),
        (["id", "b"], ["a"]),
        (["id", "c"], ["a", "b"]),
    ]
    assert "its schema fits" in deployment.command("check")


def test_from_avro_the_topic_begins_anew(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    """A registry may take a schema in another language, and give it to readers as one in Avro. So cdc refuses it."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    deployment = deploy_in("avro", deploy, registry, source={"on_gap": "rebackfill"})
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 'x')")
    deployment.assert_equal("public.t")
    deployment.bridge.stop()
    deployment.settings["topics"]["format"] = "json-schema"
    deployment.write()
    name = subject(deployment.topic("public.t"))
    be_compatible(registry, name, "NONE")
    assert f"subject {name} has schemas in AVRO" in deployment.command("check", code=3)
    deployment.start_bridge()
    deployment.bridge.wait_said(f"subject {name} has schemas in AVRO")
    for suffix in ("", "?permanent=true"):
        request = urllib.request.Request(f"{registry.url}/subjects/{name}{suffix}", method="DELETE")
        urllib.request.urlopen(request, timeout=30).close()
    database.execute("INSERT INTO t VALUES (2, 'y')")
    deployment.wait_equal("public.t")
    deployment.assert_equal("public.t")
    newest = {record.key: record.value for record in deployment.records("public.t")}
    assert {value[5:] for value in newest.values() if value is not None} == {b'{"id":1,"a":"x"}', b'{"id":2,"a":"y"}'}


def test_confluents_deserializer_reads_and_validates_it(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    database.execute(
        'CREATE TABLE t (id integer PRIMARY KEY, n numeric(5,2), f float8, at timestamptz, tags text[], "a b" jsonb)'
    )
    deployment = deploy_in("json-schema", deploy, registry)
    deployment.start_bridge()
    database.execute(
        "INSERT INTO t VALUES (1, 1.50, 'NaN', 'infinity', '{{x,NULL}}', '{\"k\": [1]}'),"
        " (2, NULL, 0.5, NULL, '[2:2]={x}', NULL)"
    )
    deployment.wait_published()
    assert "JsonSchemaConverter" in deployment.command("connect-schema", "public.t", code=2)
    with SchemaRegistryClient({"url": registry.url, "timeout": 10}) as client:
        read = JSONDeserializer(None, schema_registry_client=client)
        records = deployment.records("public.t")
        rows = [read(each.value, SerializationContext(each.topic, MessageField.VALUE)) for each in records]
    assert {row["id"]: row for row in rows} == {
        1: {"id": 1, "n": "1.50", "f": "NaN", "at": "infinity", "tags": [["x", None]], "a b": {"k": [1]}},
        2: {"id": 2, "n": None, "f": 0.5, "at": None, "tags": "[2:2]={x}", "a b": None},
    }
