"""A job ends with the command that started it: else a killed command would leave a snapshot open that holds VACUUM."""

from __future__ import annotations

import os
import threading
from typing import Final

PARENT_VARIABLE: Final = "CDC_JOB_PARENT"
"""Environment variable with the process id of the command; without it a job is on its own (``spark-submit``)."""

_LOOK_S: Final = 1.0
_EXIT_CODE: Final = 2


def end_with_parent() -> None:
    """From now on, end this process when its parent is not the command any more; the JVM ends with it."""
    command = os.environ.get(PARENT_VARIABLE)
    if command is not None:
        threading.Thread(target=_watch, args=(int(command),), name="parent", daemon=True).start()


def _watch(command: int) -> None:
    while os.getppid() == command:
        threading.Event().wait(_LOOK_S)
    os._exit(_EXIT_CODE)
