"""A random test's choices, which its seed decides."""

from __future__ import annotations

import os
import random
import sys
from typing import Final

import pytest

_RUNS: Final = int(os.environ.get("RUNS", "1"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``RUNS=20`` runs each test with 20 seeds: from ``SEED`` on, or at random."""
    if _RUNS > 1 and "rng" in metafunc.fixturenames:
        metafunc.parametrize("rng", range(_RUNS), indirect=True)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Its seed is printed, and replays the choices."""
    seed = int(os.environ.get("SEED", random.randrange(10**6))) + int(getattr(request, "param", 0))
    sys.stdout.write(f"replay with: make test-fault SEED={seed}\n")
    return random.Random(seed)
