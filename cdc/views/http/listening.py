"""The socket of a service, and a thread that serves on it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import uvloop

from cdc.base.config.serve import ServeConfig
from cdc.base.errors import ConfigError
from cdc.views.http.http import Server

_BACKLOG: Final = 2048

MakeServer = Callable[[], Server]
"""Makes the server. Call it in the event loop in which the server runs."""


def listen(settings: ServeConfig) -> socket.socket:
    """Opens the socket on which all processes answer.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listening = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except (OSError, TypeError) as error:  # TypeError: the text cannot be a host name
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port}: {getattr(error, 'strerror', None) or error}",
            remedy="choose another serve.host or serve.port, or --port; 0 picks a free port",
        ) from error
    listening.setblocking(False)
    return listening


def url_of(listening: socket.socket, settings: ServeConfig) -> str:
    """The URL of the service."""
    scheme = "https" if settings.tls_cert is not None else "http"
    host, port = listening.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class ServerThread:
    """Serves in this process.

    Args:
        make: makes the server.
        listening: the socket.
    """

    def __init__(self, make: MakeServer, listening: socket.socket) -> None:
        self._make = make
        self._listening = listening
        self._server: Server | None = None
        self._is_stopped = False

    def run(self) -> None:
        """Serves until ``stop``. Runs in a thread of its own."""
        uvloop.run(self._serve())

    def stop(self) -> None:
        """Tells the server to end soon."""
        self._is_stopped = True
        if self._server is not None:
            self._server.stop()

    async def _serve(self) -> None:
        self._server = self._make()
        if not self._is_stopped:
            await self._server.serve([self._listening])
