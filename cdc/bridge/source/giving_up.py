"""Ends a thread that waits for the server: in good order if the server answers, and soon if it does not."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import psycopg

from cdc.base.daemon.worker import beside
from cdc.base.errors import CdcError, SourceUnavailable

_LOOK_S: Final = 0.2
"""How often to look whether to stop: what is done meanwhile takes up to a minute."""
_POLL_S: Final = 0.05
_CANCEL_S: Final = 1.0
"""How long the server has to cancel what it does for us. A server that hangs takes the request and never answers."""
_CUT_S: Final = 1.0
"""How long a thread has to notice that its connection was cut off."""


@contextlib.contextmanager
def unless_stopped(stop: threading.Event, conn: psycopg.Connection[Any], doing: str) -> Iterator[None]:
    """Gives up what the connection does in this block when ``stop`` is set.

    Args:
        stop: set when nobody wants it any more.
        conn: the connection; the block asks the server for one thing that may take long.
        doing: completes "… was given up".

    Raises:
        SourceUnavailable: it was given up.
    """

    def watch(over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            if stop.is_set():
                give_up(over.wait, lambda: [conn])

    try:
        with beside(watch, name="stop watch"):
            yield
    except CdcError as error:
        if not stop.is_set():
            raise
        raise SourceUnavailable(f"{doing} was given up", remedy="wait: cdc tries again by itself") from error


def give_up(is_over: Callable[[float], bool], connections: Callable[[], Iterable[psycopg.Connection[Any]]]) -> None:
    """Cancel what a thread waits for, and wait for the thread's end, for a few seconds at most.

    The server is asked first. Otherwise it would still run a statement that waits for a lock when nobody wants it.

    Args:
        is_over: waits for at most this many seconds; returns whether the thread has ended, or will ask no more.
        connections: returns the connections that the thread uses now.
    """
    began = time.monotonic()
    while not is_over(_POLL_S) and time.monotonic() - began < _CANCEL_S + _CUT_S:
        for conn in connections():
            left_s = began + _CANCEL_S - time.monotonic()
            with contextlib.suppress(psycopg.Error, OSError):  # the connection is gone, which is just as well
                if left_s > 0:
                    conn.cancel_safe(timeout=left_s)
                else:
                    _cut_off(conn)


def _cut_off(conn: psycopg.Connection[Any]) -> None:
    """Shut the socket down, so that whoever reads it sees its end. The descriptor remains for libpq to close."""
    with socket.socket(fileno=os.dup(conn.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
