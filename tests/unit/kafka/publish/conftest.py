"""Brokers for the producers of this room."""

from __future__ import annotations

import pytest

from tests.unit.kafka.publish.in_memory import InMemory


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """Without topics yet."""
    return InMemory(monkeypatch)
