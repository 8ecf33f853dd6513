"""A cache of its own for tests that would otherwise see, or end, the developer's own servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.lab.stack.jars import fetch_jars
from cdc.lab.stack.redis_server import fetch_redis
from cdc.lab.stack.registry import fetch_registry


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache directory, but for the programs that are downloaded already."""
    programs = (fetch_jars().parent, fetch_redis().parent, fetch_registry().parent)
    cache = tmp_path / "cache"
    cache.mkdir()
    for program in programs:
        (cache / program.name).symlink_to(program)
    monkeypatch.setenv("CDC_CACHE_DIR", str(cache))
    for variable in ("CDC_PG_URL", "CDC_KAFKA", "CDC_REDIS_URL", "CDC_REGISTRY_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    return cache
