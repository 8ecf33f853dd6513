"""Start a Spark job as a process of its own, and end with its exit code.

A process, so that nothing of Spark is loaded into the other commands, and a job that runs out of memory takes nothing
with it. The description goes in through standard input: it holds passwords, which a command line would show.
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
_CODES: Final[Mapping[int, int]] = {0: 0, FOUND: SOMETHING_WRONG}


def run_job(kind: str, job: BaseModel) -> int:
    """Run it to its end; Ctrl-C ends it too, and SIGTERM is handed on: what follows topics ends between two batches.

    Args:
        kind: as ``python -m cdc.spark`` knows it.
        job: its description.

    Returns:
        0, 1 when it found something wrong, 2 when it has no answer, however it ended; 130 after Ctrl-C.

    Raises:
        typer.Exit: with that code, after SIGTERM: whoever wanted to run another one behind it was told to stop, too.
    """
    # Ignored, as some supervisors hand it down, the end of a child cannot be known: Python takes it for 0.
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
        # The terminal has told the job as well; it ends its snapshot and its JVM.
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
    """The job's description as JSON, its secrets in the clear."""
    return json.dumps(_revealed(job.model_dump()))


def _revealed(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {name: _revealed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_revealed(each) for each in value]
    return value
