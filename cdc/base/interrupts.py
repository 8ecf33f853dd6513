"""Ctrl-C before a command runs, and after it: a quiet end at once. While it runs: an end in good order.

While modules are imported, nothing has begun that would need an end in good order. A ``KeyboardInterrupt`` there ends
in a traceback, or in an import that fails for no visible reason.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

EXIT_CODE: Final = 130
"""Of a command that Ctrl-C ended, as shells have it."""


def end_at_once() -> None:
    """From now on Ctrl-C ends the process, unless whoever started it wants SIGINT ignored (``nohup``, ``&``)."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)


def raise_from_now_on() -> None:
    """Undo ``end_at_once``: Ctrl-C raises ``KeyboardInterrupt``, so that a command can end in good order."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raise_at_every_polite_end() -> None:
    """SIGTERM and SIGHUP raise ``KeyboardInterrupt`` as well, unless whoever started us wants them ignored (``nohup``).

    For commands that have servers to stop.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_CODE)
