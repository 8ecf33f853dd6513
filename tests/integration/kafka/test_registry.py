"""The client of the schema registry against Apicurio Registry: what is registered, refused, forgotten, and kept."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from cdc.base.config import RegistryConfig
from cdc.base.errors import RegistryRefused, RegistryUnavailable
from cdc.kafka.registry import SchemaRegistry
from cdc.lab.stack import RegistryServer
from tests.support.names import unique
from tests.support.servers import BASIC_AUTH


def record(*fields: dict[str, Any]) -> str:
    """A schema, written as nobody else would, so that one who writes it anew is noticed."""
    return json.dumps({"fields": list(fields), "name": "Row", "namespace": "shop.public", "type": "record"}, indent=1)


ID = {"type": "long", "name": "id"}
NAME = {"name": "name", "type": ["null", "string"], "default": None, "doc": "ä", "cdc.type": "text"}
FIRST = record(ID)
WIDER = record(ID, NAME)
OTHER = record({**ID, "type": "string"}, {"name": "needed", "type": "int"})


def call(server: RegistryServer, method: str, path: str, content: Any = None) -> Any:
    """What an operator does to the registry."""
    body = None if content is None else json.dumps(content).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{server.url}/{path}", body, headers, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


@pytest.fixture
def client(registry: RegistryServer) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(RegistryConfig(url=registry.url)) as opened:
        yield opened


@pytest.fixture
def subject() -> str:
    return f"{unique('shop.public.')}-value"


def test_a_schema_has_one_id_however_often_it_is_registered(client: SchemaRegistry, subject: str) -> None:
    known = client.register(subject, "AVRO", FIRST)
    assert client.register(subject, "AVRO", FIRST) == known
    wider = client.register(subject, "AVRO", WIDER)
    assert wider != known
    assert client.register(subject, "AVRO", FIRST) == known


def test_the_text_of_a_schema_means_what_was_registered(client: SchemaRegistry, subject: str) -> None:
    """Apicurio writes it anew: the white space, and the order of the keys."""
    text = client.text_of(client.register(subject, "AVRO", WIDER))
    assert text is not None
    assert json.loads(text) == json.loads(WIDER)


def test_the_language_of_a_subject(client: SchemaRegistry, subject: str) -> None:
    assert client.kind(subject) is None
    client.register(subject, "AVRO", FIRST)
    assert client.kind(subject) == "AVRO"
    client.register(f"{subject}-2", "JSON", '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}')
    assert client.kind(f"{subject}-2") == "JSON"


def test_an_id_that_nobody_has(client: SchemaRegistry) -> None:
    assert client.text_of(2_000_000_000) is None


def test_a_change_that_readers_do_not_understand(
    registry: RegistryServer, client: SchemaRegistry, subject: str
) -> None:
    everybody = client.compatibility(subject)
    assert client.problems(subject, "AVRO", FIRST) == ()
    client.register(subject, "AVRO", FIRST)
    assert everybody == client.compatibility(subject) == "NONE"
    assert client.problems(subject, "AVRO", OTHER) == ()

    call(registry, "PUT", f"config/{subject}", {"compatibility": "BACKWARD"})
    assert client.compatibility(subject) == "BACKWARD"
    assert client.problems(subject, "AVRO", WIDER) == ()
    assert client.problems(subject, "AVRO", OTHER) == (
        "not compatible by mode BACKWARD; the registry gives no reasons",
    )
    with pytest.raises(RegistryRefused, match="reader type: STRING not compatible with writer type: LONG") as refused:
        client.register(subject, "AVRO", OTHER)
    assert "/fields/1" in str(refused.value), "both reasons"
    assert subject in str(refused.value)

    call(registry, "PUT", f"config/{subject}", {"compatibility": "NONE"})
    assert client.problems(subject, "AVRO", OTHER) == ()
    assert client.register(subject, "AVRO", OTHER)


def test_what_is_no_schema_is_refused(client: SchemaRegistry, subject: str) -> None:
    for text in ("{nonsense", '{"type": "nosuch"}'):
        with pytest.raises(RegistryRefused, match=r"HTTP status 422") as refused:
            client.register(subject, "AVRO", text)
        assert "report that" in refused.value.remedy


def test_a_subject_that_was_deleted_is_not_remembered(
    registry: RegistryServer, client: SchemaRegistry, subject: str
) -> None:
    known = client.register(subject, "AVRO", FIRST)
    call(registry, "DELETE", f"subjects/{subject}")
    # What was written with this id stays readable
    assert client.text_of(known) is not None
    client.register(subject, "AVRO", FIRST)


def test_a_wrong_path_is_no_outage(registry: RegistryServer, subject: str) -> None:
    root = registry.url.partition("/apis")[0]
    for url in (root, f"{root}/apis", f"{registry.url}/x"):
        with SchemaRegistry(RegistryConfig(url=url)) as client:
            with pytest.raises(RegistryRefused, match="is not a schema registry") as refused:
                client.register(subject, "AVRO", FIRST)
            assert "/apis/ccompat/v7 for Apicurio" in refused.value.remedy


def test_a_registry_that_was_away(own_stack: Any) -> None:
    server = own_stack.registry()
    with SchemaRegistry(RegistryConfig(url=server.url)) as client:
        known = client.register("s", "AVRO", FIRST)
        server.stop()
        with pytest.raises(RegistryUnavailable, match="does not answer") as away:
            client.register("s", "AVRO", FIRST)
        assert away.value.retryable
        server.restart()
        assert client.register("s", "AVRO", FIRST) == known
        assert client.text_of(known) is not None


def test_a_registry_that_asks_for_a_password(own_stack: Any) -> None:
    server = own_stack.registry(BASIC_AUTH)
    login = {"user": "cdc", "password": BASIC_AUTH["quarkus.security.users.embedded.users.cdc"]}
    with SchemaRegistry(RegistryConfig.model_validate({"url": server.url, **login})) as client:
        assert client.text_of(client.register("s", "AVRO", FIRST))
    for wrong in ({}, {**login, "password": "wrong"}):
        with (
            SchemaRegistry(RegistryConfig.model_validate({"url": server.url, **wrong})) as client,
            pytest.raises(RegistryRefused, match="does not let us in"),
        ):
            client.register("s", "AVRO", FIRST)
