"""Worlds in memory, in a process of their own: the real bridge and view meet whatever may happen, at random."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.soak import times

SECONDS = times(60, soak=3_600)


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS + 300)
def test_no_world_breaks_a_promise() -> None:
    """A failure prints the seed, the shortest world that was found to fail, too, and how to replay both."""
    seed = ["--first", os.environ["SEED"]] if "SEED" in os.environ else []
    command = [sys.executable, "-m", "tests.world", "--seconds", str(SECONDS), *seed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS + 200, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
