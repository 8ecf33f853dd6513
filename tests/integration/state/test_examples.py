"""The services in config/examples, each run as a user would."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin
from cdc.lab.stack import Kafka
from tests.architecture.tree import ROOT
from tests.support.reading import fold_topic
from tests.support.topic_settings import make_topic
from tests.support.waiting import eventually

EXAMPLES = ROOT / "config" / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_example_has_its_test() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in Path(EXAMPLES).glob("*.py")} <= tested


def test_user_profiles(kafka: Kafka, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example("user_profiles").main(kafka.bootstrap, name)
    assert capsys.readouterr().out.splitlines() == [
        "registered twice: False",
        "Ann saves: True",
        "Bob saves, too late: False",
        "user-1 {'name': 'Alice Johnson', 'email': 'a@example.org', 'age': 21}",
        "user-2 {'name': 'Bob', 'email': 'bob@example.org', 'age': 22}",
        "user-3 {'name': 'Cleo', 'email': 'cleo@example.org', 'age': 23}",
        "user-4 {'name': 'Dora', 'email': 'dora@example.org', 'age': 24}",
    ]


def test_sessions(kafka: Kafka, options: dict[str, Any], name: str) -> None:
    make_topic(options, name, 2, "delete")
    producer = Producer(options)
    for user, kind in ((b"ann", "login"), (b"bob", "login"), (b"ann", "view"), (b"ann", "view"), (b"bob", "logout")):
        producer.produce(name, key=user, value=orjson.dumps({"type": kind, "at": "2026-01-01T10:00:00Z"}))
    producer.flush()
    stopping = threading.Event()
    service = threading.Thread(target=example("sessions").main, args=(kafka.bootstrap, name, "one", stopping, name))
    service.start()
    try:
        missing = f"{name}-sessions-changelog"
        eventually(lambda: missing in TopicAdmin(BrokerAdmin(options)).partitions())
        eventually(lambda: b"ann" in (now := fold_topic(options, missing)) and b"bob" not in now)
        assert orjson.loads(fold_topic(options, missing)[b"ann"].value)["actions"] == 2
    finally:
        stopping.set()
        service.join(20)


def test_feature_flags(kafka: Kafka, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example("feature_flags").main(kafka.bootstrap, name)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "instance 1: 0 % -> 10 %"
    assert "refused: the value does not fit setting 'feature-flags'" in said[1]
    assert said[-4:] == [
        "values that did not fit: None",
        '1 ann {"search":"new","to_percent":10}',
        '2 bob {"search":"new","to_percent":100}',
        '3 ann {"search":"new","to_percent":10}',
    ]


def test_inventory_cache(kafka: Kafka, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example("inventory_cache").main(kafka.bootstrap, f"{name}-events", name)
    assert capsys.readouterr().out.splitlines() == [
        "products whose events had no state yet: 0",
        "apples: 42 pears: 20",
        "apples: 40 pears: 0",
        "differences between stock and movements: []",
    ]


def test_bloom_filter(capsys: pytest.CaptureFixture[str]) -> None:
    example("bloom_filter").main("1000", "0.01")
    size, measured = capsys.readouterr().out.splitlines()
    assert size == "1000 items at 0.01: 9586 bits, 7 hashes, 1199 bytes"
    assert "measured" in measured
    assert "theory" in measured
