"""Says which server a command waits for, once that takes two seconds: nobody should look at a silent screen.

Commands show the line on standard error, daemons in their log. Both follow from Python's handling of a logger's
warnings.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

TELL_AFTER_S: Final = 2.0
"""Longer than any healthy server takes to answer, and shorter than the patience of a person at a terminal."""

_LOG: Final = logging.getLogger("cdc.waiting")


def tell(whom: str, doing: str, limit: str) -> None:
    """Log that we wait.

    Args:
        whom: the server, with host and port, and without a secret.
        doing: what we wait for it to do, such as ``to connect``.
        limit: how long we will wait.
    """
    _LOG.warning("waiting for %s %s, %s", whom, doing, limit)


@contextmanager
def told(whom: str, doing: str, limit: str) -> Iterator[None]:
    """Call ``tell`` once if the block takes long; arguments as for ``tell``."""
    # A timer thread, because the block is inside a client library. A short block costs 0.1 ms more.
    timer = threading.Timer(TELL_AFTER_S, tell, (whom, doing, limit))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
