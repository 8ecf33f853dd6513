"""``cdc.state`` works with just the rights that docs/state.md lists, and without one of them the error names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from pydantic import BaseModel

from cdc.base.errors import CdcError, TopicRefused
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.state import ChangelogStore, ConfigStore, ConfigWriter, EventSourced, StateProducer, StateReader
from cdc.state.configuration_history import read_history
from tests.architecture.pages import page
from tests.integration.security.secured_kafka import SecuredKafka, secured_kafka
from tests.support.waiting import eventually

ROWS: Final = [tuple(cell.strip("`") for cell in row) for row in page("docs/state.md").rows("for")]
NAMES: Final = {"topic": "config", "events": "events", "state": "state", "source": "source", "app": "app", "store": "s"}
RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
OPERATIONS: Final = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
TOPICS: Final = {
    "config": "compact",
    "config.history": "delete",
    "events": "delete",
    "state": "compact",
    "source": "delete",
    "app-s-changelog": "compact",
}


class Limit(BaseModel):
    value: int = 1


def read(options: Mapping[str, Any]) -> None:
    with StateReader(options, "config") as reader:
        reader.load()


def produce(options: Mapping[str, Any]) -> None:
    with StateProducer(options, "config") as producer:
        producer.put("limit", {"value": 2})


def read_configuration(options: Mapping[str, Any]) -> None:
    with ConfigStore(options, "config") as store:
        store.setting("limit", Limit())
        store.load()
    read_history(options, "config")


def configure(options: Mapping[str, Any]) -> None:
    with ConfigWriter(options, "config", {"limit": Limit}) as writer:
        writer.put("limit", {"value": 3})


def append(options: Mapping[str, Any]) -> None:
    with EventSourced(options, events="events", state="state", apply=lambda _, event: event) as events:
        events.append("k", {"v": 1})
        assert events.verify() == []


def step(options: Mapping[str, Any]) -> None:
    with ChangelogStore(options, app="app", store="s", source="source", instance="i") as store:
        eventually(lambda: store.step(lambda event, state: state.put(event.key or b"", {"v": 1}), timeout_s=0.1), 10)


USES: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    "StateReader": read,
    "StateProducer": produce,
    "ConfigWriter": configure,
    "ConfigStore": read_configuration,
    "EventSourced": append,
    "ChangelogStore": step,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("certificates")) as opened:
        options = {"bootstrap.servers": opened.broker.bootstrap}
        TopicAdmin(BrokerAdmin(options)).create_missing(
            [TopicSpecification(name, 1, 1, {"cleanup.policy": policy}) for name, policy in TOPICS.items()]
        )
        yield opened


def send_event(broker: SecuredKafka) -> None:
    producer = Producer({"bootstrap.servers": broker.broker.bootstrap})
    producer.produce("source", key=b"k", value=b"1")
    producer.flush()


def bindings(use: str, user: str) -> list[AclBinding]:
    """What the page says, one binding for each operation."""
    found = []
    for name, resource, pattern, operations in ROWS:
        if name == use:
            exact = re.sub(r"<(\w+)>", lambda match: NAMES.get(match[1], match[1][0]), pattern)
            for operation in operations.split(", "):
                where = RESOURCES[resource], exact, ResourcePatternType.LITERAL
                found.append(AclBinding(*where, f"User:{user}", "*", OPERATIONS[operation], AclPermissionType.ALLOW))
    return found


def client(broker: SecuredKafka, user: str, directory: Path) -> dict[str, Any]:
    broker.user(user, "secret")
    section = broker.section(user, "secret")
    return {**section["options"], "bootstrap.servers": section["bootstrap"], "sasl.password": section["password"]}


def test_the_page_names_each_class() -> None:
    assert {row[0] for row in ROWS} == set(USES)


def test_the_listed_rights_are_enough(broker: SecuredKafka, tmp_path: Path) -> None:
    for use, run in USES.items():
        options = client(broker, use, tmp_path)
        broker.allow(bindings(use, use))
        send_event(broker)
        run(options)


@pytest.mark.parametrize("use", USES)
def test_without_one_of_them_the_error_says_what_to_grant(broker: SecuredKafka, tmp_path: Path, use: str) -> None:
    for number in range(len(bindings(use, ""))):
        user = f"{use}-less-{number}"  # each of its own: brokers take a moment to hear of what was taken away
        options, rights = client(broker, user, tmp_path), bindings(use, user)
        missing = rights.pop(number)
        if rights:
            broker.allow(rights)
        operation = next(name for name, each in OPERATIONS.items() if each == missing.operation)

        def is_named(
            options: dict[str, Any] = options, missing: AclBinding = missing, operation: str = operation
        ) -> bool:
            send_event(broker)
            with pytest.raises(CdcError) as caught:
                USES[use](options)
            said = caught.value.remedy
            return (
                isinstance(caught.value, TopicRefused) and f"--operation {operation}" in said and missing.name in said
            )

        eventually(is_named, timeout_s=5, message=f"{use} without {missing}")
