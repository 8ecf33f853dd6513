"""The end of a server that is not our child, as `cdc stack down` meets it."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from cdc.lab.stack.running import kill_tree

_PARENT = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"


def test_nobody_waits_for_a_process_whose_parent_does_not_ask_for_its_end() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        started = time.monotonic()
        kill_tree(orphan, 30)
        assert orphan.status() == psutil.STATUS_ZOMBIE
        assert time.monotonic() - started < 15
        parent.communicate()
