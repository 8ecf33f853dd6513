"""A wait for a server that takes longer than two seconds says for whom it is: nobody should look at a silent screen.

Commands show it on standard error, daemons in their log: both are what Python does with a logger's warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

TELL_AFTER_S: Final = 2.0
"""Longer than any healthy answer takes, and shorter than the patience of somebody at a terminal."""

_LOG: Final = logging.getLogger("cdc.waiting")


def tell(whom: str, doing: str, limit: str) -> None:
    """Say it now.

    Args:
        whom: the server, with host and port, and without a secret.
        doing: what we want of it, such as ``to connect``.
        limit: how long we are going to wait.
    """
    _LOG.warning("waiting for %s %s, %s", whom, doing, limit)


@contextmanager
def told(whom: str, doing: str, limit: str) -> Iterator[None]:
    """Say it once if the block takes long; arguments as for ``tell``."""
    # A thread, because the block is within a client library. Where it is short, this costs 0.1 ms.
    timer = threading.Timer(TELL_AFTER_S, tell, (whom, doing, limit))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
