"""Prometheus's own checker of rules and expressions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def find_promtool() -> str:
    """Path of promtool: ``CDC_TEST_PROMTOOL``, else the one beside Python, else the one on the PATH."""
    named = os.environ.get("CDC_TEST_PROMTOOL")
    if named:
        assert shutil.which(named), f"CDC_TEST_PROMTOOL names {named}, which is no program"
        return named
    found = shutil.which("promtool", path=Path(sys.executable).parent) or shutil.which("promtool")
    assert found, (
        "no promtool here. `make promtool` fetches it where apt-get is; elsewhere install the package prometheus, "
        "or name promtool in CDC_TEST_PROMTOOL"
    )
    return found


def promtool(*words: str | Path) -> str:
    """What it says; an AssertionError with that when it does not agree."""
    done = subprocess.run([find_promtool(), *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
