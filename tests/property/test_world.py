"""Worlds in memory, in a process of their own: the real bridge and view meet whatever may happen, at random."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.support.soak import times

WORLDS = times(200, soak=100_000)
SAMPLE = "change of key"
"""A tombstone and a row, between which a bridge could die."""


@pytest.mark.soak
@pytest.mark.timeout(max(900, WORLDS))
def test_no_world_breaks_a_promise() -> None:
    """The same worlds each time, so that what passed once passes again; ``make soak`` and ``make world`` draw others.

    A failure prints the seed, the shortest world that was found to fail, too, and how to replay both.
    """
    first = os.environ.get("SEED", str(random.getrandbits(32)) if "SOAK" in os.environ else "0")
    run("tests.world", "--worlds", str(WORLDS), "--first", first)


@pytest.mark.soak
@pytest.mark.timeout(10 * 3_600 if "SOAK" in os.environ else 900)
def test_a_fault_at_every_step_breaks_no_promise() -> None:
    """A kill of the bridge in one world; in ``make soak`` each fault in all small worlds."""
    run(
        "tests.world.every_step",
        *([] if "SOAK" in os.environ else ["--kinds", "bridge killed", "--deeds", SAMPLE, "--configurations", "1"]),
    )


def run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
