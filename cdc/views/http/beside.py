"""Pages of the dashboard, answered beside the service's own. They run in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Final

from cdc.base.daemon.pages import Pages, Reply, Request
from cdc.base.daemon.threads import Threads
from cdc.views.query.watching import Watching

ROOT: Final = "/dashboard/"
_THREADS: Final = 20
"""Enough for all who may watch at once, and a few more for the other pages."""


class Beside:
    """An ASGI application in front of another one.

    Args:
        app: answers everything else.
        pages: answer ``/`` and everything below ``/dashboard/``, and check by themselves who may see it. They stay open
            until the service stops.
        stopping: set when the service stops.
    """

    def __init__(self, app: Any, pages: AbstractContextManager[Pages], stopping: asyncio.Event) -> None:
        self._app = app
        self._stopping = stopping
        self._threads = Threads(_THREADS, "dashboard")
        self._opened = ExitStack()
        self._pages = self._opened.enter_context(pages)
        self._end = asyncio.get_running_loop().create_task(self._close())

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Answers one request."""
        path = scope["raw_path"].decode("latin-1")
        if scope["method"] not in ("GET", "HEAD") or not (path == "/" or path.startswith(ROOT)):
            await self._app(scope, receive, send)
            return
        request = Request(path, scope["query_string"].decode("latin-1"), list(scope["headers"]))
        reply = await asyncio.get_running_loop().run_in_executor(self._threads, partial(self._pages, request))
        if reply is None:
            await self._app(scope, receive, send)
        elif isinstance(reply.body, bytes):
            await _send(reply, reply.body, send)
        else:
            watching = Watching(self._pieces(reply.body), self._stopping, scope["abort"])
            await watching.run(receive, send)

    async def _close(self) -> None:
        await self._stopping.wait()
        await asyncio.get_running_loop().run_in_executor(self._threads, self._opened.close)

    async def _pieces(self, body: Generator[bytes, None, None]) -> AsyncGenerator[bytes, None]:
        """Yields the pieces of a body. Each is waited for in a thread, which may outlive the client for a while."""
        alone = threading.Lock()  # a generator cannot be closed while a thread is still in it

        def step() -> bytes | None:
            with alone:
                return next(body, None)

        def close() -> None:
            with alone:
                body.close()

        try:
            while (piece := await asyncio.get_running_loop().run_in_executor(self._threads, step)) is not None:
                yield piece
        finally:
            self._threads.submit(close)


async def _send(reply: Reply, body: bytes, send: Any) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in reply.headers]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
