"""A job ends with the command that started it."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

from cdc.contract.jobspec.parent import NO_ANSWER, PARENT_VARIABLE

_LOOK_S: Final = 1.0
_GRACE_S: Final = 10.0


def end_with_parent() -> None:
    """From now on, end this process when its parent is not the command any more; the JVM ends with it.

    Else a killed command would leave a snapshot open that holds VACUUM.
    """
    command = os.environ.get(PARENT_VARIABLE)
    if command is not None:
        threading.Thread(target=_watch, args=(int(command),), name="parent", daemon=True).start()


def _watch(command: int) -> None:
    while os.getppid() == command:
        threading.Event().wait(_LOOK_S)
    # First as anybody would ask it to end, so that it can tidy up.
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_S)
    os._exit(NO_ANSWER)
