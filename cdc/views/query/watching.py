"""One open watch: sends as quickly as the client reads, until the client goes or the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import structlog

from cdc.base.errors import CdcError
from cdc.base.web.problem import Problem
from cdc.views.query.events import farewell

SLOWEST_S: Final = 10.0
"""How long a client may take to read what was sent. A slower one would keep ever older rows in our memory."""

Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]

log = structlog.get_logger("cdc.serve")


class Watching:
    """An open watch.

    Args:
        events: the events to send.
        stopping: set when the service stops.
        abort: cuts the connection off and drops what was not read.
    """

    def __init__(
        self, events: AsyncGenerator[bytes, None], stopping: asyncio.Event, abort: Callable[[], None] = lambda: None
    ) -> None:
        self._events = events
        self._stopping = stopping
        self._abort = abort
        self.was_cut = False

    async def run(self, receive: Receive, send: Send) -> None:
        """Sends events until the client goes, reads too slowly, or the service stops."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        told = asyncio.create_task(self._tell(send))
        ends = [told, asyncio.create_task(self._stopping.wait()), asyncio.create_task(_gone(receive))]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        error = None if told.cancelled() else told.exception()
        if isinstance(error, TimeoutError):
            self.was_cut = True
            log.warning(
                "a watch was cut off: its client does not read",
                limit_s=SLOWEST_S,
                remedy="let the client read faster or watch fewer keys; it can go on from its last event id",
            )
            self._abort()
            await _gone(receive)
            return
        if error is not None and not isinstance(error, CdcError | Problem):
            log.error(
                "a watch ended with an error",
                exc_info=error,
                remedy="let the client watch again from its last event id; if it comes back, report it with this "
                "traceback",
            )
        await send({"type": "http.response.body", "body": farewell(error), "more_body": False})

    async def _tell(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                async with asyncio.timeout(SLOWEST_S):
                    await send({"type": "http.response.body", "body": event, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
