"""A session of the sink in memory."""

from __future__ import annotations

import pytest

from tests.unit.sink.apply.mirror import Mirror


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Over empty topics, with an empty replica."""
    return Mirror(monkeypatch)
