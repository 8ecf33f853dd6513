"""Keys in Avro, with schemas in a real registry: one row has one key, whatever happens to it and to the registry.

The oracle reads keys as a foreign reader does: fastavro, with the schema that the registry has.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc.base.errors import GapError
from cdc.contract.naming import schemas_topic, subject
from cdc.kafka.brokers import BrokerAdmin
from cdc.lab.stack import Redis, RegistryServer
from tests.integration.bridge.test_cloud_events import events
from tests.integration.bridge.test_gaps import delete_topic
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.living.waiting import wait_equal
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.names import unique
from tests.support.serve_process import ServeProcess
from tests.support.servers import Database, OwnStack
from tests.support.type_matrix import matrix_tables
from tests.support.waiting import eventually


def heads(deployment: Deployment, table: str) -> set[bytes]:
    """What the keys of a table's records begin with: a zero byte and the id, or a brace."""
    keys = [record.key or b"" for record in deployment.records(table)]
    return {key[:5] if key.startswith(b"\0") else key[:1] for key in keys}


def live(deployment: Deployment, table: str) -> set[bytes]:
    """The keys that have a row."""
    newest = {record.key or b"": record.value for record in deployment.records(table)}
    return {key for key, value in newest.items() if value is not None}


@pytest.mark.parametrize(("delivery", "format_"), [("transactional", "avro"), ("idempotent", "json")])
def test_each_path_writes_the_same_key(
    deploy: Deploy, database: Database, registry: RegistryServer, delivery: str, format_: str
) -> None:
    database.execute("CREATE TABLE t (id bigint, code text, note text, PRIMARY KEY (code, id))")
    database.execute("INSERT INTO t SELECT i, 'c' || i, 'x' FROM generate_series(1, 50) i")
    deployment = deploy_in("avro keys", deploy, registry, topics={"format": format_, "cloudevents": True})
    deployment.deliver(delivery)
    deployment.start()
    deployment.wait_backfilled("public.t")
    database.execute("UPDATE t SET note = 'y' WHERE id <= 10")
    database.execute("UPDATE t SET code = 'moved' WHERE id = 11")
    database.execute("DELETE FROM t WHERE id = 12")
    deployment.assert_equal("public.t")
    deployment.command("backfill", "public.t", "--sweep")
    deployment.assert_equal("public.t")
    assert len(live(deployment, "public.t")) == 49
    database.execute("TRUNCATE t")
    database.execute("INSERT INTO t VALUES (-1, 'ä', 'z'), (9223372036854775807, '', 'z')")
    deployment.assert_equal("public.t")
    assert len(live(deployment, "public.t")) == 2
    assert len(heads(deployment, "public.t")) == 1
    topic = deployment.topic("public.t")
    with SchemaRegistryClient({"url": registry.url, "timeout": 10}) as client:
        read = AvroDeserializer(client)
        found = [read(key, SerializationContext(topic, MessageField.KEY)) for key in live(deployment, "public.t")]
        assert client.get_versions(subject(topic, part="key")) == [1]
    assert {(each["code"], each["id"]) for each in found} == {("ä", -1), ("", 9223372036854775807)}
    assert "z" in deployment.command("get", "public.t", "id=-1,code=ä")


def test_every_key_type(deploy: Deploy, database: Database, replica: Database, registry: RegistryServer) -> None:
    deployment = deploy_in("avro keys", deploy, registry)
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
        assert all(len(heads(deployment, name)) == 1 for name in names)


def test_a_type_that_grows_keeps_the_keys_and_another_one_begins_anew(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    database.execute("CREATE TABLE t (id integer, code varchar(5), note text, PRIMARY KEY (id, code))")
    database.execute("INSERT INTO t SELECT i, 'c' || i, 'x' FROM generate_series(1, 40) i")
    deployment = deploy_in("avro keys", deploy, registry, source={"on_gap": "rebackfill"})
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    before = live(deployment, "public.t")
    database.execute("ALTER TABLE t ALTER COLUMN id TYPE bigint, ALTER COLUMN code TYPE text, ADD COLUMN more integer")
    database.execute("UPDATE t SET note = 'y', more = 1")
    deployment.wait_published()
    deployment.assert_published("public.t")
    assert live(deployment, "public.t") == before
    assert len(heads(deployment, "public.t")) == 1
    database.execute("ALTER TABLE t ALTER COLUMN id TYPE text")
    database.execute("UPDATE t SET note = 'z' WHERE id = '3'")
    deployment.wait_equal("public.t")
    assert len(heads(deployment, "public.t")) == 2
    assert not live(deployment, "public.t") & before
    database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code)")
    database.execute("UPDATE t SET code = 'moved' WHERE id = '4'")
    deployment.wait_equal("public.t")
    assert len(live(deployment, "public.t")) == 40


def test_another_form_of_keys_begins_the_topic_anew(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    """From JSON to Avro and back: no row stays under two keys, for the sink neither."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, n integer)")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i")
    deployment = deploy_in("avro keys", deploy, registry, topics={"key_format": "json"})
    deployment.start()
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    for form, begin in (("avro", b"\0"), ("json", b"{")):
        deployment.bridge.stop()
        deployment.settings["topics"]["key_format"] = form
        deployment.settings["source"].pop("on_gap", None)
        deployment.write()
        deployment.bridge.start()
        assert deployment.bridge.wait() == GapError.exit_code
        assert "its keys are to be written" in deployment.bridge.said()
        deployment.settings["source"]["on_gap"] = "rebackfill"
        deployment.write()
        database.execute("DELETE FROM t WHERE id % 10 = 3; UPDATE t SET n = n + 1 WHERE id % 10 = 4")
        deployment.start_bridge()
        wait_equal(deployment, "public.t")
        assert {key[:1] for key in live(deployment, "public.t")} == {begin}


def test_a_registry_with_other_ids_is_refused(
    deploy: Deploy, database: Database, own_stack: OwnStack, registry: RegistryServer
) -> None:
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 20) i")
    own_registry = own_stack.registry()
    deployment = deploy_in("avro keys", deploy, own_registry)
    deployment.start()
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    before = deployment.records("public.t")
    assert "0 FAIL" in deployment.command("check")
    deployment.bridge.stop()
    for number in range(3):  # so that the other registry gives other ids
        fill(registry, f"{deployment.name}-{number}", {"type": "enum", "name": f"e{number}", "symbols": ["A"]})
    deployment.settings["registry"]["url"] = registry.url
    deployment.write()
    assert "keys in topic" in deployment.command("check", code=3)
    database.execute("INSERT INTO t VALUES (21, 1)")
    deployment.bridge.start()
    assert deployment.bridge.wait() == GapError.exit_code
    assert "restore the registry with its ids" in deployment.bridge.said()
    assert deployment.records("public.t") == before
    deployment.settings["registry"]["url"] = own_registry.url
    deployment.write()
    deployment.start_bridge()  # the registry is restored
    deployment.assert_equal("public.t")
    assert len(heads(deployment, "public.t")) == 1
    deployment.bridge.stop()
    own_registry.stop()
    deployment.start_bridge()  # the id is on record, so a registry that is away holds up nothing
    database.execute("UPDATE t SET a = 1")
    deployment.wait_mirrored()
    assert len(heads(deployment, "public.t")) == 1
    deployment.bridge.stop()
    deployment.settings["registry"]["url"] = registry.url
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()  # the ids are lost, and a person says so
    database.execute("DELETE FROM t WHERE id = 1")
    wait_equal(deployment, "public.t")
    assert len({key[:5] for key in live(deployment, "public.t")}) == 1
    assert len(heads(deployment, "public.t")) == 2


def test_views_and_commands_show_keys_in_json(
    deploy: Deploy, database: Database, registry: RegistryServer, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id numeric, code text, a text, PRIMARY KEY (id, code))")
    database.execute("INSERT INTO t VALUES (1.0, 'x', 'one')")
    deployment = deploy_in(
        "avro keys",
        deploy,
        registry,
        topics={"history": ["public.t"]},
        view={"store": "view", "index": {"public.t": ["a"]}},
        serve={"port": 0},
    )
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    service = ServeProcess(deployment.config, tmp_path / "serve.log")
    service.start()
    try:
        database.execute("INSERT INTO t VALUES (2, 'é', NULL), (3, 'gone', 'b')")
        database.execute("DELETE FROM t WHERE id = 3")
        lsn = str(deployment.wait_published())
        with service.client() as client:

            def row(number: str) -> Any:
                answer = client.get(f"/v1/tables/public.t/rows/{number}", params={"min_lsn": lsn})
                return answer.json() if answer.status_code == 200 else answer.status_code

            assert eventually(lambda: row("1/x")) == {"id": "1.0", "code": "x", "a": "one"}
            assert row("2/é") == {"id": "2", "code": "é", "a": None}
            assert row("3/gone") == 404
    finally:
        service.kill()
    found = json.loads(deployment.command("get", "public.t", "id=1,code=x", "--json"))
    assert (found["key"], found["row"]["a"]) == ({"id": "1.0", "code": "x"}, "one")
    told = deployment.command("history", "public.t", "id=3,code=gone", "--json")
    assert [json.loads(line)["op"] for line in told.splitlines() if line.startswith("{")] == ["c", "d"]
    assert "keys in JSON only" in deployment.command("reconcile", "public.t", code=2)


@pytest.mark.parametrize("store", ["folder", "redis"])
def test_a_view_lives_through_another_form_of_keys(
    deploy: Deploy, database: Database, registry: RegistryServer, redis: Redis, tmp_path: Path, store: str
) -> None:
    """From JSON to Avro and back, while rows go and change; then another process opens the same store."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, n integer)")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 60) i")
    address = "view" if store == "folder" else f"{redis.url}?prefix={unique('keys')}"
    view, source = {"store": address, "index": {"public.t": ["n"]}}, {"on_gap": "rebackfill"}
    topics = {"key_format": "json"}
    deployment = deploy_in("avro keys", deploy, registry, topics=topics, view=view, source=source, serve={"port": 0})
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    service = ServeProcess(deployment.config, tmp_path / "serve.log")

    def asked(client: httpx.Client, **params: str) -> list[tuple[int, int]]:
        answer = client.get("/v1/tables/public.t/rows", params={"limit": "100", **params})
        rows = [each["row"] for each in answer.json()["rows"]] if answer.status_code == 200 else []
        return [(row["id"], row["n"]) for row in rows]

    def holds(client: httpx.Client) -> bool:
        rows = database.execute("SELECT id, n FROM t ORDER BY id")
        return asked(client) == rows and asked(client, **{"index.n": "1"}) == [each for each in rows if each[1] == 1]

    service.start()
    try:
        with service.client() as client:
            eventually(lambda: holds(client))
            for form, number in (("avro", 3), ("json", 4)):
                deployment.bridge.stop()
                deployment.settings["topics"]["key_format"] = form
                deployment.write()
                database.execute(f"DELETE FROM t WHERE id % 10 = {number}; UPDATE t SET n = n + 1 WHERE id % 10 > 6")
                deployment.start_bridge()
                database.execute(f"INSERT INTO t VALUES ({number} + 100, 1)")
                deployment.wait_published()
                deployment.wait_backfilled("public.t")
                eventually(lambda: holds(client), message=lambda: f"{asked(client)}\n{service.tail()}")
        service.stop()
        service.start()
        with service.client() as client:
            eventually(lambda: holds(client))
    finally:
        service.kill()


def test_the_other_bridge_of_a_pair_with_another_form_of_keys_is_refused(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    """When its turn comes, it writes nothing, and the first one goes on."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 20) i")
    deployment = deploy_in("avro keys", deploy, registry)
    deployment.start()
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    before = deployment.records("public.t")
    settings = {**deployment.settings, "topics": {**deployment.settings["topics"], "key_format": "json"}}
    config = deployment.directory / "other.yaml"
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    other = deployment.kind("run", config, deployment.directory / "other.log")
    other.start()
    try:
        other.wait_said("waiting for the slot")
        deployment.bridge.kill()
        assert other.wait(60) == GapError.exit_code
        assert "its keys are to be written in json now" in other.said()
    finally:
        other.kill()
    assert deployment.records("public.t") == before
    deployment.start_bridge()
    database.execute("UPDATE t SET a = 1")
    deployment.assert_equal("public.t")
    assert len(heads(deployment, "public.t")) == 1


@pytest.mark.parametrize("has_other_ids", [False, True])
def test_a_schemas_topic_that_is_lost_leaves_no_row_under_two_keys(
    deploy: Deploy, database: Database, own_stack: OwnStack, registry: RegistryServer, has_other_ids: bool
) -> None:
    """With the registry still there, and with one that was restored with other ids."""
    database.execute("CREATE TABLE t (id integer PRIMARY KEY, a integer)")
    database.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 20) i")
    deployment = deploy_in("avro keys", deploy, own_stack.registry())
    deployment.start()
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    before, former = deployment.records("public.t"), heads(deployment, "public.t")
    deployment.stop()
    admin = BrokerAdmin({"bootstrap.servers": deployment.bootstrap})
    delete_topic(admin, schemas_topic(deployment.name))
    if has_other_ids:
        for number in range(3):
            fill(registry, f"{deployment.name}-{number}", {"type": "enum", "name": f"e{number}", "symbols": ["A"]})
        deployment.settings["registry"]["url"] = registry.url
        deployment.write()
    database.execute("DELETE FROM t WHERE id = 3; UPDATE t SET a = 1 WHERE id = 4; INSERT INTO t VALUES (21, 1)")
    deployment.bridge.start()
    assert deployment.bridge.wait(60) == GapError.exit_code
    assert deployment.records("public.t") == before
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start()
    if has_other_ids:
        eventually(lambda: not any(key[:5] in former for key in live(deployment, "public.t")))
    deployment.wait_equal("public.t")
    assert len({key[:5] for key in live(deployment, "public.t")}) == 1
    assert len(heads(deployment, "public.t")) == (2 if has_other_ids else 1)
    if has_other_ids:
        # Nothing tells the sink any more which keys the former ones were
        deployment.sink.wait_said("which is in no definition of the schemas topic")
        deployment.stop()
        delete_topic(admin, deployment.topic("public.t"))
        deployment.start()
    wait_equal(deployment, "public.t")


def test_avro_keys_beside_values_in_other_forms_and_cloud_events(
    deploy: Deploy, database: Database, registry: RegistryServer
) -> None:
    """The sections do not meet: keys have an id, values have no schema, and a key that is not text is no subject."""
    database.execute("CREATE TABLE t (at timestamptz, raw bytea, price numeric(8,2), doc jsonb, PRIMARY KEY (at, raw))")
    database.execute("INSERT INTO t VALUES ('2026-01-02 03:04:05.6Z', '\\x00ff', 1.50, '{\"a\": 1}')")
    values = {"timestamps": "iso", "numeric": "number", "bytea": "base64", "documents": "string"}
    topics = {"partitions": 1, "cloudevents": True, "history": ["public.t"]}
    deployment = deploy_in("avro keys", deploy, registry, topics=topics, values=values)
    deployment.start()
    deployment.wait_backfilled("public.t")
    database.execute("INSERT INTO t VALUES ('infinity', '', NULL, 'null')")
    database.execute("UPDATE t SET raw = '\\x01' WHERE at = 'infinity'")
    database.execute("DELETE FROM t WHERE raw = '\\x00ff'")
    deployment.assert_equal("public.t")
    assert len(heads(deployment, "public.t")) == 1
    found = [json.loads(each.value) for each in deployment.records("public.t") if each.value is not None]
    first = {"at": "2026-01-02T03:04:05.6Z", "raw": "AP8=", "price": 1.5, "doc": '{"a": 1}'}
    moved = {"at": "infinity", "raw": "AQ==", "price": None, "doc": "null"}
    assert (found[0], found[-1]) == (first, moved)
    headers = events(deployment, deployment.topic("public.t"))
    assert {each["ce_source"] for each in headers} == {f"/{deployment.name}/{deployment.topic('public.t')}"}
    assert not any("ce_subject" in each for each in headers)
    row = json.loads(deployment.command("get", "public.t", "at=infinity,raw=\\x01", "--json"))["row"]
    assert row == {"at": "infinity", "raw": "\\x01", "price": None, "doc": None}
    told = deployment.command("history", "public.t", "at=infinity,raw=\\x01", "--json")
    assert [json.loads(line)["op"] for line in told.splitlines() if line.startswith("{")] == ["c"]


def fill(registry: RegistryServer, name: str, schema: object) -> None:
    """Register a schema, so that the registry's next id is another one."""
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{registry.url}/subjects/{name}/versions", body, kind)
    urllib.request.urlopen(request, timeout=30).close()
