"""``cdc`` as a user types it, run to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.spark_jvm import SHARED


def cdc(*arguments: str | Path, own_jvm: bool = False, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
    """Run a command that starts a Spark job.

    Args:
        arguments: behind ``cdc``.
        own_jvm: whether the job starts a JVM as it does for a user, and does not use the warm one of the tests.
        timeout_s: longest time to wait for its end.
    """
    command = [sys.executable, "-m", "cdc", *map(str, arguments)]
    environment = None if own_jvm else SHARED.environment()
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment)
