"""A job whose command was killed ends by itself."""

from __future__ import annotations

import subprocess
import sys

import psutil

from cdc.contract.jobspec.parent import PARENT_VARIABLE
from tests.support.waiting import eventually

JOB = """
import threading
from cdc.spark.__main__ import end_with_parent
end_with_parent()
print("watches", flush=True)
threading.Event().wait()
"""
COMMAND = f"""
import os, subprocess, sys
job = subprocess.Popen([sys.executable, "-c", {JOB!r}], env={{**os.environ, {PARENT_VARIABLE!r}: str(os.getpid())}})
print(job.pid, flush=True)
job.wait()
"""


def test_the_job_of_a_killed_command_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        job = psutil.Process(int(command.stdout.readline()))
        assert command.stdout.readline() == "watches\n"
        command.kill()
    eventually(lambda: not job.is_running() or job.status() == psutil.STATUS_ZOMBIE, 30, lambda: str(job))
