"""Values in Protobuf, with schemas in a real registry: what each change becomes, and how columns keep their fields.

The oracle reads the topics as a foreign reader does: with Google's compiler, and the schema that the registry has.
What does not depend on the format is in ``test_formats.py``.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from cdc.base.config import RegistryConfig
from cdc.base.errors import RegistryRefused
from cdc.contract.formats.protobuf.schema import is_same_schema, protobuf_schema, read_schema
from cdc.contract.naming import subject
from cdc.kafka.registry import SchemaRegistry
from cdc.lab.proof.protobuf_fields import compiled
from cdc.lab.stack import RegistryServer
from tests.integration.bridge.test_compatibility import defined
from tests.integration.bridge.test_formats import be_compatible, ids
from tests.integration.bridge.test_type_matrix import prepare
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.names import unique
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database
from tests.support.type_matrix import matrix_tables
from tests.support.waiting import eventually


def schemas(registry: RegistryServer, deployment: Deployment, table: str) -> list[str]:
    """The schemas of a table's values, in the order of their versions in the registry."""
    versions = f"{registry.url}/subjects/{subject(deployment.topic(table))}/versions"
    with urllib.request.urlopen(versions) as answer:
        numbers = json.loads(answer.read())
    texts = []
    for number in numbers:
        with urllib.request.urlopen(f"{versions}/{number}") as answer:
            texts.append(json.loads(answer.read())["schema"])
    return texts


def fields(schema: str) -> dict[str, int]:
    return {column.name: column.number for column in read_schema(schema).columns}


def test_every_type_in_protobuf(
    deploy: Deploy, database: Database, replica: Database, registry: RegistryServer
) -> None:
    deployment = deploy_in("protobuf", deploy, registry, topics={"partitions": 1, "beyond": "text"})
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


def test_columns_keep_their_fields(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    """A number never belongs to another column; what is dropped stays reserved; a name in another case is another."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text)")
    deployment = deploy_in("protobuf", deploy, registry)
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    deployment.wait_mirrored()
    changes = [
        "ALTER TABLE t ADD COLUMN b numeric(6,2)",
        "ALTER TABLE t RENAME COLUMN a TO c",
        "ALTER TABLE t DROP COLUMN b",
        'ALTER TABLE t ADD COLUMN b numeric(6,2), ADD COLUMN "B" integer[], ADD COLUMN "b b" timestamptz',
    ]
    for number, change in enumerate(changes, 3):
        database.execute(change)
        database.execute(f"INSERT INTO t (id) VALUES ({number})")
        deployment.wait_mirrored()
    database.execute('UPDATE t SET "B" = \'{1,NULL}\', "b b" = now()')
    database.execute("UPDATE t SET id = 9 WHERE id = 1")
    database.execute("DELETE FROM t WHERE id = 4")
    deployment.wait_equal("public.t")
    deployment.assert_equal("public.t")
    found = schemas(registry, deployment, "public.t")
    assert [fields(each) for each in found] == [
        {"id": 1, "a": 2},
        {"id": 1, "a": 2, "b": 3},
        {"id": 1, "c": 2, "b": 3},
        {"id": 1, "c": 2},
        {"id": 1, "c": 2, "b": 4, "B": 5, "b b": 6},
    ]
    assert "  reserved 3;\n" in found[-1]
    assert all(compiled(each) for each in found)


def test_a_table_that_comes_while_the_bridge_runs(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    deployment = deploy_in("protobuf", deploy, registry)
    deployment.start()
    database.execute("CREATE TABLE late (id integer PRIMARY KEY, a text)")
    database.execute("INSERT INTO late VALUES (1, 'x')")
    deployment.wait_mirrored()
    deployment.wait_equal("public.late")
    database.execute("INSERT INTO late VALUES (2, 'y')")
    deployment.assert_equal("public.late")
    assert [fields(each) for each in schemas(registry, deployment, "public.late")] == [{"id": 1, "a": 2}]


def test_another_type_of_a_column_stops_its_table_alone(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    """The registry takes everything by default, but a reader with the former schema would read NULL or nonsense."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    database.execute("CREATE TABLE other (id integer PRIMARY KEY)")
    deployment = deploy_in("protobuf", deploy, registry)
    name = subject(deployment.topic("public.t"))
    be_compatible(registry, name, "BACKWARD")
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, 1)")
    deployment.wait_mirrored()
    database.execute("ALTER TABLE t ALTER COLUMN a TYPE bigint")
    database.execute("INSERT INTO t VALUES (2, 9007199254740993)")
    database.execute("INSERT INTO other VALUES (1)")
    deployment.bridge.wait_said(
        "column a was int4 and is int8: a reader with the former schema would read wrong values"
    )
    deployment.wait_mirrored()
    deployment.assert_equal("public.other")
    assert {record.key for record in deployment.records("public.t")} == {b'{"id":1}'}
    assert f"does not fit subject {name}" in deployment.command("check", code=3)
    be_compatible(registry, name, "NONE")
    deployment.wait_equal("public.t", "public.other")


def test_a_value_that_does_not_fit_names_its_row(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, at timestamptz)")
    deployment = deploy_in("protobuf", deploy, registry)
    be_compatible(registry, subject(deployment.topic("public.t")), "BACKWARD")
    deployment.start()
    database.execute("INSERT INTO t VALUES (1, now()), (7, 'infinity')")
    said = deployment.bridge.refusal(3)
    assert "public.t" in said
    assert "{'id': b'7'}" in said
    assert "topics.beyond" in said
    deployment.settings["topics"]["beyond"] = "text"
    deployment.write()
    deployment.start_bridge()  # the text has a field of its own, so that the registry takes it
    deployment.assert_equal("public.t")


def test_a_wide_table(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    """PostgreSQL's limit of columns, among them names that only differ in case, or in what JSON leaves out."""
    columns = ['"A b" integer', '"a B" integer', '"a_u20_B" integer', '"1" integer', '"c_1" integer', '"[x]" text']
    columns += [f"c{number} smallint" for number in range(1_592)]
    database.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {', '.join(columns)})")
    deployment = deploy_in("protobuf", deploy, registry)
    deployment.start()
    database.execute("INSERT INTO t SELECT i, i, i + 1, i + 2, i + 3 FROM generate_series(1, 20) i")
    deployment.assert_equal("public.t")


def test_confluents_deserializer_reads_it(deploy: Deploy, database: Database, registry: RegistryServer) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf.json_format import MessageToDict

    database.execute('CREATE TABLE t (id integer PRIMARY KEY, n numeric(5,2), at timestamptz, tags text[], "a b" text)')
    deployment = deploy_in("protobuf", deploy, registry)
    deployment.start_bridge()
    database.execute(
        "INSERT INTO t VALUES (0, 1.50, '2026-01-02 03:04:05.6Z', '{x,NULL}', 'ä'), (2, NULL, NULL, '{}', '')"
    )
    deployment.wait_published()
    (schema,) = schemas(registry, deployment, "public.t")
    read = ProtobufDeserializer(compiled(schema).message, {"use.deprecated.format": False})
    records = deployment.records("public.t")
    rows = [read(each.value, SerializationContext(each.topic, MessageField.VALUE)) for each in records]
    tags = {"elements": [{"value": "x"}, {}]}
    # The first backfill may have met the rows as well. In its JSON, columns have their own names.
    assert {row.id: MessageToDict(row) for row in rows} == {
        0: {"n": "1.50", "at": "2026-01-02T03:04:05.600Z", "tags": tags, "a b": "ä"},
        2: {"id": 2, "tags": {}, "a b": ""},
    }


def test_rows_are_looked_up_and_shown(
    deploy: Deploy, database: Database, registry: RegistryServer, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a text, at timestamptz)")
    database.execute("INSERT INTO t VALUES (1, 'x\"', '2026-01-02 03:04:05.6Z')")
    sections: dict[str, dict[str, Any]] = {
        "view": {"store": "view", "index": {"public.t": ["a"]}},
        "serve": {"port": 0},
    }
    deployment = deploy_in("protobuf", deploy, registry, **sections)
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

            assert eventually(lambda: row(1)) == {"id": 1, "a": 'x"', "at": "2026-01-02 03:04:05.6+00"}
            assert eventually(lambda: row(2)) == {"id": 2, "a": None, "at": None}
    finally:
        service.kill()
    found = json.loads(deployment.command("get", "public.t", "1", "--json"))
    assert found["row"] == {"id": 1, "a": 'x"', "at": "2026-01-02 03:04:05.6+00"}
    assert "ProtobufConverter" in deployment.command("connect-schema", "public.t", code=2)


def test_the_registry_keeps_the_text(registry: RegistryServer) -> None:
    """Comments are a part of it: two schemas that differ only there have two ids."""
    definitions = [defined("a varchar(5)"), defined("a varchar(6)")]
    texts = [protobuf_schema(each, "shop", "text") for each in definitions]
    name = unique("texts-")
    with SchemaRegistry(RegistryConfig(url=registry.url)) as client:
        numbers = [client.register(name, "PROTOBUF", text) for text in texts]
        assert len(set(numbers)) == 2
        assert [client.text_of(number) for number in numbers] == texts
        assert client.register(name, "PROTOBUF", texts[0]) == numbers[0]
        assert not is_same_schema(*texts)
        with pytest.raises(RegistryRefused, match=r"HTTP status 422"):
            client.register(name, "PROTOBUF", "message {")
