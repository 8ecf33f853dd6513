"""A daemon's HTTP server: ``/metrics`` for Prometheus, ``/live`` and ``/ready`` for whatever restarts the process.

The caller may add pages, such as the dashboard's: the dashboard knows rooms that a daemon must not import.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from cdc.base.daemon.pages import OpenPages, Pages, Reply, Request
from cdc.base.daemon.worker import Worker
from cdc.base.errors import ConfigError

_REQUEST_TIMEOUT_S = 10.0

Ready = Callable[[], tuple[bool, Mapping[str, object]]]

log = structlog.get_logger("cdc.http")


class HealthServer:
    """Serves from its own threads between ``start`` and ``close``, or inside ``with``.

    ``/live`` answers 200 as long as the process can answer at all; ``/ready`` answers 200 or 503.

    Args:
        host: address to listen on.
        port: port to listen on; 0 picks a free one, which ``port`` returns after ``start``.
        registry: the metrics that ``/metrics`` shows.
        ready: called for each ``/ready``, from a thread of the server; returns whether the work is being done, and
            facts (JSON values) for the person who asks.
        stop: set when the listening thread fails; ``close`` then raises the failure.
        more: further pages.
        elsewhere: the remedy for an address that is in use: how to choose another.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        ready: Ready,
        stop: threading.Event | None = None,
        more: OpenPages | None = None,
        *,
        elsewhere: str = "choose another http.host or port; 0 picks a free port, null serves nothing",
    ) -> None:
        self._address = (host, port)
        self._registry = registry
        self._ready = ready
        self._more = more
        self._elsewhere = elsewhere
        self._opened = ExitStack()
        self._server: _Server | None = None
        self._stop = stop or threading.Event()
        self._worker: Worker | None = None

    @property
    def port(self) -> int:
        """The port in use; before ``start``, the port that was asked for."""
        return int(self._server.server_address[1]) if self._server is not None else self._address[1]

    def start(self) -> None:
        """Start to listen and to answer.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        host, port = self._address
        try:
            self._server = _Server(self._address, self._registry, self._ready)
        except (OSError, TypeError) as error:  # TypeError: the host cannot be a name
            raise ConfigError(
                f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}", remedy=self._elsewhere
            ) from error
        if self._more is not None:
            self._server.more = self._opened.enter_context(self._more(self._registry))
        self._worker = Worker(partial(self._server.serve_forever, 0.1), name="http", on_failure=self._stop.set)
        self._worker.start()
        log.info("serving /metrics, /live and /ready", url=f"http://{_in_url(host)}:{self.port}")

    def close(self, error: BaseException | None = None) -> None:
        """Stop listening, without waiting for requests that are being answered.

        Args:
            error: the exception that ends the ``with`` block; a failure here must not replace it.
        """
        server, worker = self._server, self._worker
        self._server = self._worker = None
        if server is not None and worker is not None:
            server.shutdown()
            server.server_close()
            self._opened.close()
            worker.end(error)

    def __enter__(self) -> HealthServer:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close(error)


class _Server(ThreadingHTTPServer):
    # A client that reads slowly must not hold up the end of the process
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, ready: Ready) -> None:
        self.address_family = _family(address[0])
        self.registry = registry
        self.ready = ready
        self.more: Pages = lambda _: None
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - overrides
        """Log the error instead of printing it; that a client went away is normal, anything else is a bug in cdc."""
        tell = log.debug if isinstance(sys.exc_info()[1], OSError) else log.error
        remedy = "report it with this traceback; everything else goes on"
        tell("request not answered", client=str(client_address[0]), exc_info=True, remedy=remedy)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "cdc"
    sys_version = ""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        match path:
            case "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self.server.registry))
            case "/live":
                self._answer_json(HTTPStatus.OK, {"live": True})
            case "/ready":
                self._answer_ready()
            case _:
                self._answer_more(path, query)

    do_HEAD = do_GET  # noqa: N815 - the standard library's name

    def _answer_ready(self) -> None:
        try:
            ready, facts = self.server.ready()
        except Exception as error:  # a probe must get an answer; the log has the cause
            log.warning(
                "cannot tell whether ready",
                exc_info=True,
                remedy="report it with this traceback; until it is fixed, /live and the log show whether "
                "the process works",
            )
            ready, facts = False, {"error": type(error).__name__}
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer_json(status, {"ready": ready, **facts})

    def _answer_more(self, path: str, query: str) -> None:
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        reply = self.server.more(Request(path, query, headers))
        if reply is None:
            pages = ["/metrics", "/live", "/ready"]
            self._answer_json(HTTPStatus.NOT_FOUND, {"error": "no such page", "pages": pages})
        elif isinstance(reply.body, bytes):
            self._begin(reply, [("Content-Length", str(len(reply.body)))])
            if self.command != "HEAD":
                self.wfile.write(reply.body)
        else:
            with closing(reply.body):
                self.close_connection = True  # without a length, the end of the connection ends the answer
                self._begin(reply, [("Connection", "close")])
                for piece in () if self.command == "HEAD" else reply.body:
                    self.wfile.write(piece)

    def _begin(self, reply: Reply, more: list[tuple[str, str]]) -> None:
        self.send_response(reply.status)
        for name, value in (*reply.headers, *more):
            self.send_header(name, value)
        self.end_headers()

    def _answer_json(self, status: HTTPStatus, body: Mapping[str, object]) -> None:
        self._answer(status, "application/json", json.dumps(body, default=str).encode() + b"\n")

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        log.debug("request", client=self.client_address[0], line=format % args)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
