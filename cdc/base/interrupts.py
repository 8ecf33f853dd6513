"""Ctrl-C ends the process at once before and after a command runs; while the command runs, it ends it in good order.

While modules are imported, nothing needs an end in good order yet, and a ``KeyboardInterrupt`` would cause a traceback,
or an import that fails for no visible reason.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

EXIT_CODE: Final = 130
"""The exit code of a command that Ctrl-C ended, as in shells."""


def end_at_once() -> None:
    """Make Ctrl-C end the process at once, unless the parent made it ignore SIGINT (``nohup``, ``&``)."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)


def raise_from_now_on() -> None:
    """Undo ``end_at_once``: Ctrl-C raises ``KeyboardInterrupt``, so that a command can end in good order."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raise_at_every_polite_end() -> None:
    """Make SIGTERM and SIGHUP raise ``KeyboardInterrupt`` as well, unless the parent made us ignore them (``nohup``).

    Commands use this that have servers to stop.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_CODE)
