"""A cache of its own for tests that would otherwise see, or end, the developer's own servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.stack.jars import fetch_jars


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache directory, but for the Kafka that is downloaded already."""
    kafka = fetch_jars().parent
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / kafka.name).symlink_to(kafka)
    monkeypatch.setenv("CDC_CACHE_DIR", str(cache))
    for variable in ("CDC_PG_URL", "CDC_KAFKA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    return cache
