"""Topics of a test's own on the session's broker."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.lab.stack import Kafka
from tests.support.names import unique
from tests.support.topic_settings import make_topic


@pytest.fixture
def options(kafka: Kafka) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap}


@pytest.fixture
def name() -> str:
    """Begins the names of the test's topics."""
    return unique("state-")


@pytest.fixture
def compacted(options: dict[str, Any], name: str) -> str:
    """A compacted topic with two partitions."""
    topic = f"{name}-compacted"
    make_topic(options, topic, 2, "compact")
    return topic
