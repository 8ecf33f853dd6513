"""uvicorn as this service runs it: its protocol, its limits, and a stop that watchers are told about."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias, cast

import uvicorn

from cdc.base.config.serve import ServeConfig
from cdc.views.http.application import App
from cdc.views.http.protocol import IDLE_S, AtOnce, Protocol

_CONNECTIONS: Final = 1000
"""Connections beside the watches; more are answered with 503. On most systems a process may have 1024 files open."""
STOP_S: Final = 10
"""How long requests under way may take when the service stops."""
_FAREWELL_S: Final = 0.5
"""How long a client may take to read the end of an answer and close its side. An idle client notices when it asks
again."""

Refresh: TypeAlias = Callable[[], Awaitable[None]]


class Server(uvicorn.Server):
    """Serves until ``stop``; leaves signals to the process.

    Args:
        app: answers requests.
        at_once: answers requests that need no waiting.
        settings: TLS, and the limits.
        stopping: set first when the server stops.
        refresh: called again and again.
        every_s: seconds between two of these calls.
    """

    def __init__(
        self, app: App, at_once: AtOnce, settings: ServeConfig, stopping: asyncio.Event, refresh: Refresh, every_s: int
    ) -> None:
        self._stopping = stopping
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=cast(Any, partial(Protocol, at_once)),
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=_CONNECTIONS + settings.max_watches,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=STOP_S,
                callback_notify=refresh,
                timeout_notify=every_s,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )

    def stop(self) -> None:
        """Tells the server to end soon. Call it from any thread."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tells the watchers, then waits for the requests under way."""
        self._stopping.set()
        letting_go = asyncio.create_task(self._let_go())
        await super().shutdown(sockets)
        letting_go.cancel()

    async def _let_go(self) -> None:
        """Cuts off clients that do not answer the end of the connection: TLS would wait for them for half a minute."""
        told: set[Any] = set()
        while True:
            await asyncio.sleep(_FAREWELL_S)
            for each in told & self.server_state.connections:
                each.transport.abort()
            told = {
                each
                for each in self.server_state.connections
                if each.transport.is_closing() and not each.transport.get_write_buffer_size()
            }

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: they belong to the process, not to one of its servers."""
        yield
