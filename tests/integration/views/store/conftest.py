"""Stores, and a seed that is told."""

from __future__ import annotations

import os
import random
import sys

import pytest

pytest.register_assert_rewrite("tests.integration.views.store.contract")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of a random test; ``SEED=42`` replays it."""
    chosen = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: SEED={chosen} .venv/bin/python -m pytest '{request.node.nodeid}'\n")
    return chosen
