"""Runs a Spark job as a process of its own, and returns its exit code.

With a process of its own, other commands need not load Spark, and a job that runs out of memory kills nothing else.
The job's description goes through standard input, because it holds passwords, which a command line would show.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

import typer
from pydantic import BaseModel, SecretStr

from cdc.contract.jobspec.parent import FOUND, NO_ANSWER, PARENT_VARIABLE
from cdc.ops.jobs.answers import SOMETHING_WRONG

INTERRUPTED: Final = 130
_PATIENCE_S: Final = 30
"""How long a job may take to end after Ctrl-C, before it is killed."""
_CODES: Final[Mapping[int, int]] = {0: 0, FOUND: SOMETHING_WRONG}


def run_job(kind: str, job: BaseModel) -> int:
    """Run a job to its end, and pass SIGTERM on to it: a job that follows topics then ends between two batches.

    Args:
        kind: the job's name for ``python -m cdc.spark``.
        job: the job's description.

    Returns:
        0; 1 if the job found something wrong; 2 if it has no answer, however it ended; 130 after Ctrl-C.

    Raises:
        typer.Exit: with the same code after SIGTERM, so that the caller does not start another job after this one.
    """
    # Some supervisors start us with SIGCHLD ignored. The exit code of a child is lost then, and Python reports 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
    process = subprocess.Popen([sys.executable, "-m", "cdc.spark", kind], stdin=subprocess.PIPE, env=environment)
    told: list[int] = []

    def hand_on(number: int, _frame: object) -> None:
        told.append(number)
        process.terminate()

    before = signal.signal(signal.SIGTERM, hand_on)
    try:
        process.communicate(document(job).encode())
    except KeyboardInterrupt:
        # The terminal sent SIGINT to the job as well. Give it time to end its snapshot and its JVM.
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    code = _CODES.get(process.returncode, NO_ANSWER)
    if told:
        raise typer.Exit(code)
    return code


def document(job: BaseModel) -> str:
    """Returns the job's description as JSON, with its secrets in plain text."""
    return json.dumps(_revealed(job.model_dump()))


def _revealed(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {name: _revealed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_revealed(each) for each in value]
    return value
