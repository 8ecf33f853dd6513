"""docs/state.md: every block of Python runs, in order, against a real broker, and does what the page says."""

from __future__ import annotations

import re
import threading
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin
from cdc.lab.stack import Kafka
from tests.architecture.pages import page
from tests.support.reading import fold_topic
from tests.support.topic_settings import make_topic
from tests.support.waiting import eventually

PAGE = page("docs/state.md")


def test_every_example_of_the_page_runs(
    kafka: Kafka, options: dict[str, Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"{name}-user-events"
    make_topic(options, source, 2, "delete")
    blocks = PAGE.fences("python")
    assert len(blocks) >= 11
    space: dict[str, Any] = {}
    for block in blocks:
        own_names = re.sub(
            r'"(user-profiles|user-events|shop-analytics|account-events|accounts|service-config)"',
            rf'"{name}-\1"',
            block,
        )
        exec(compile(own_names.replace("localhost:9092", kafka.bootstrap), "docs/state.md", "exec"), space)
    said = capsys.readouterr().out
    assert "{'name': 'Ann', 'balance': 110} None" in said
    assert 'key {"user_id":7}' in said, "the conflict"
    assert "another producer took over" in said
    assert "{'name': 'Ann', 'balance': 95} 3" in said
    assert "{'balance': 50} {b'ann': {'balance': 50}} []" in said
    assert "timeout: 5.0 -> 2.0" in said
    assert re.search(r"3 20\S+ ann b'.\"timeout_s\":2\.0", said)
    outcomes = ("NEW: 1", "DUPLICATE: 2", "NEW: 1", "TOO_LATE: 3")
    assert f"[{', '.join(f'<DuplicateVerdict.{each}>' for each in outcomes)}]" in said
    assert "[True, True, False, False, True]" in said
    assert "BloomSize(bits=9585059, hashes=7) 1198133" in said
    count_logins(space["serve"], options, source, f"{name}-shop-analytics-activity-changelog")


def count_logins(serve: Any, options: dict[str, Any], source: str, changelog: str) -> None:
    """As the page says: after 5 logins, ``login_count`` is 5."""
    producer = Producer(options)
    for _ in range(5):
        producer.produce(source, key=b"alice", value=b'{"kind":"login_count"}')
    producer.flush()
    stopping = threading.Event()
    service = threading.Thread(target=serve, args=(stopping,))
    service.start()
    try:
        eventually(lambda: changelog in TopicAdmin(BrokerAdmin(options)).partitions())
        eventually(lambda: fold_topic(options, changelog))
        alice = orjson.loads(fold_topic(options, changelog)[b"alice"].value)
        assert alice == {"login_count": 5, "purchases": 0}
    finally:
        stopping.set()
        service.join(20)


def test_every_public_name_is_on_the_page() -> None:
    import cdc.state

    assert {each for each in cdc.state.__all__ if each not in PAGE.text} == set()
