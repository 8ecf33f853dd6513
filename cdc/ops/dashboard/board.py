"""The deployments of one page, and the browsers that watch it."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from cdc.ops.dashboard.recorder import Deployment, Recorder

MAX_WATCHERS: Final = 16
"""How many pages may be open at once. Each takes a thread and a socket of the daemon."""
_HEARTBEAT_S: Final = 10.0
"""How often something is sent at least. Proxies close silent connections, and a silent server looks dead to a page."""


_LONGEST_LOOK_S: Final = 1.0
"""How long ``close`` waits for looks in progress. With a server that hangs, a look could take much longer."""


class Board:
    """The recorders of all deployments, and the streams of events to the pages; works from ``start`` to ``close``.

    Args:
        deployments: what to show, in this order.
        is_eager: record the charts even while nobody watches.
    """

    def __init__(self, deployments: Sequence[Deployment], *, is_eager: bool = True) -> None:
        self._news = threading.Condition()
        self._ended = False
        self._watchers = 0
        self.recorders: Final = [Recorder(each, self._news, is_eager=is_eager) for each in deployments]

    def start(self) -> None:
        """Start to look at the deployments."""
        for each in self.recorders:
            each.start()

    def close(self) -> None:
        """Stop looking, and end the streams of all who watch."""
        with self._news:
            self._ended = True
            self._news.notify_all()
        for each in self.recorders:  # tell all of them before waiting for any: they share one second
            each.end()
        ends_at = time.monotonic() + _LONGEST_LOOK_S
        for each in self.recorders:
            each.close(max(ends_at - time.monotonic(), 0))

    @property
    def is_full(self) -> bool:
        """Whether ``MAX_WATCHERS`` pages are open."""
        return self._watchers >= MAX_WATCHERS

    def events(self) -> Generator[bytes, None, None]:
        """Yields server-sent events: the past and the newest look of each deployment, then each look as it is taken."""
        with self._watching():
            seen = [0] * len(self.recorders)
            yield b"retry: 3000\n\n"
            while not self._ended:
                pieces = []
                for number, each in enumerate(self.recorders):
                    if each.version > seen[number]:
                        if not seen[number]:  # not earlier: the first look fills in the time before it
                            pieces.append(event("past", number, each.past()))
                        seen[number] = each.version
                        pieces.append(event("look", number, each.latest))
                yield b"".join(pieces) or b": nothing new\n\n"
                self._wait(seen)

    @contextmanager
    def _watching(self) -> Generator[None, None, None]:
        with self._news:
            self._watchers += 1
        try:
            for each in self.recorders:
                each.watch(1)
            yield
        finally:
            for each in self.recorders:
                each.watch(-1)
            with self._news:
                self._watchers -= 1

    def _wait(self, seen: Sequence[int]) -> None:
        """Wait until there is a new look, or a heartbeat is due."""
        ends_at = time.monotonic() + _HEARTBEAT_S
        with self._news:
            while not self._ended and all(
                each.version <= known for each, known in zip(self.recorders, seen, strict=True)
            ):
                left_s = ends_at - time.monotonic()
                if left_s <= 0:
                    return
                self._news.wait(left_s)


def event(name: str, deployment: int, data: bytes) -> bytes:
    """Returns one server-sent event; its data is JSON on one line."""
    return b'event: %b\ndata: {"deployment":%d,"data":%b}\n\n' % (name.encode(), deployment, data)
