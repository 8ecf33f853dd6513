"""Keys in Avro, with schemas in a real registry: one row has one key, whatever happens to it and to the registry.

The oracle reads keys as a foreign reader does: fastavro, with the schema that the registry has.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from cdc.contract.naming import subject
from cdc.lab.stack import RegistryServer
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database


def with_avro_keys(deploy: Deploy, registry: RegistryServer, **sections: dict[str, Any]) -> Deployment:
    """A deployment whose keys are Avro."""
    topics = {"key_format": "avro", **sections.pop("topics", {})}
    return deploy(topics=topics, registry={"url": registry.url}, **sections)


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
    deployment = with_avro_keys(deploy, registry, topics={"format": format_})
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
    schemas = SchemaRegistryClient({"url": registry.url})
    read = AvroDeserializer(schemas)
    topic = deployment.topic("public.t")
    found = [read(key, SerializationContext(topic, MessageField.KEY)) for key in live(deployment, "public.t")]
    assert {(each["code"], each["id"]) for each in found} == {("ä", -1), ("", 9223372036854775807)}
    assert schemas.get_latest_version(subject(topic, part="key")).schema.schema_str is not None
    assert "z" in deployment.command("get", "public.t", "id=-1,code=ä")
