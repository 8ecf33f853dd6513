"""End a thread that waits for the server: in good order where the server answers, and soon where it does not."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import psycopg

_POLL_S: Final = 0.05
_CANCEL_S: Final = 1.0
"""For the server to break off what it does for us. One that hangs takes the request, and never answers it."""
_CUT_S: Final = 1.0
"""For a thread to notice that its connection was cut off."""


def give_up(is_over: Callable[[float], bool], connections: Callable[[], Iterable[psycopg.Connection[Any]]]) -> None:
    """Give up what a thread waits for, and wait for its end, for a few seconds at most.

    The server is asked first: a statement that waits for a lock would be done later, when nobody wants it any more.

    Args:
        is_over: waits for so many seconds at most; whether the thread ended, or will ask no more.
        connections: that it uses now.
    """
    began = time.monotonic()
    while not is_over(_POLL_S) and time.monotonic() - began < _CANCEL_S + _CUT_S:
        for conn in connections():
            left_s = began + _CANCEL_S - time.monotonic()
            with contextlib.suppress(psycopg.Error, OSError):  # gone, which is as good
                if left_s > 0:
                    conn.cancel_safe(timeout=left_s)
                else:
                    _cut_off(conn)


def _cut_off(conn: psycopg.Connection[Any]) -> None:
    """Whoever waits for it sees the end of the stream; the descriptor stays libpq's to close."""
    with socket.socket(fileno=os.dup(conn.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
