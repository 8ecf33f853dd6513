"""Makes sure that a new client of the client library gets its threads.

librdkafka begins a client's threads one after the other while it makes the client. If the system refuses one of them,
it ends the process by an assertion, or waits for ever for a thread that has begun already (2.16, ``rd_kafka_new``).
Python can neither prevent that nor end the wait. So we begin as many threads at once, and end them again, before each
client: Python says in an exception that it gets no thread.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_THREADS: Final = 4
"""Those of librdkafka's event loop, of admin events, of the first broker, and of the broker that the first one names.
Those of more brokers begin later. The client survives without them, as it does while a broker is away."""


def require_threads() -> None:
    """Begin as many threads as a client needs, and end them. The system keeps their stacks for the next ones.

    Raises:
        RuntimeError: the system refuses one. ``cdc`` reports this as a lack of memory or threads, and ends.
    """
    over = threading.Event()
    with ThreadPoolExecutor(_THREADS) as threads:
        try:
            for _ in range(_THREADS):
                threads.submit(over.wait)  # begins a thread, because the others wait
        finally:
            over.set()
