"""The ASGI application: what happens to every request, and the answers when something is wrong.

There is no framework between the server and the pages. A page takes checked values and returns bytes, so a framework's
routing, validation and serialization would cost time and bring nothing: CONTRIBUTING.md has the measurement.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import structlog
from starlette.middleware.cors import CORSMiddleware

from cdc.base.errors import CdcError
from cdc.base.web.problem import PROBLEM_JSON, Headers, Kind, Problem, sentences
from cdc.base.web.tokens import Access
from cdc.views.http.pages import Call, Pages, Route
from cdc.views.http.tally import Tally
from cdc.views.query.answer import Answer
from cdc.views.query.desk import Desk, ViewRequest
from cdc.views.query.readiness import RETRY_LOAD
from cdc.views.table.errors import NotLoaded, UnknownTable, WrongCursor, WrongKey, WrongQuestion

App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_MAX_URL: Final = 8192
"""Bytes that most servers and proxies accept."""
_GRACE_S: Final = 1.0
"""A wait for ``min_lsn`` may take the whole time of a request, and must still end with its own answer."""
_READABLE: Final = (
    "Age",
    "Generation",
    "Lsn",
    "Min-Lsn",
    "Offset",
    "Partition",
    "Reason",
    "Row-Lsn",
    "Source",
    "State",
)

_WRONG: Final[Mapping[type[WrongQuestion], Kind]] = {
    UnknownTable: "unknown-table",
    WrongKey: "malformed-key",
    WrongCursor: "foreign-cursor",
    WrongQuestion: "bad-parameter",
}

log = structlog.get_logger("cdc.serve")


class Service:
    """Answers all requests of one process.

    Args:
        desk: the desk of the process.
        pages: the pages by path.
        tally: counts the answers.
    """

    def __init__(self, desk: Desk, pages: Pages, tally: Tally) -> None:
        self._desk = desk
        self._pages = pages
        self._tally = tally
        self._longest_s = desk.settings.request_timeout_s + _GRACE_S

    def app(self) -> App:
        """Returns the application for an ASGI server."""
        if not (origins := self._desk.settings.cors_origins):
            return self
        return CORSMiddleware(
            self,
            allow_origins=origins,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=("Authorization", "Content-Type", "If-None-Match", "Last-Event-ID"),
            expose_headers=("ETag", "Retry-After", *(f"Cdc-{name}" for name in _READABLE)),
        )

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Answers one request."""
        began = time.perf_counter()
        route: Route | None = None
        try:
            route = self._pages.route(scope["raw_path"])
            answer = await self._answer(route, Call(scope, receive, send))
        except Exception as error:  # noqa: BLE001 - every error has an answer
            answer = refusal(error)
        if answer is None:
            return  # the page sent its answer by itself
        self._tally.answered("other" if route is None else route.page, answer.status, time.perf_counter() - began)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.all_headers()})
        await send({"type": "http.response.body", "body": answer.body})

    def at_once(self, method: bytes, path: bytes, headers: Headers) -> Answer | None:
        """Answers a request without query and body if the local store does it in microseconds; None if it may have to
        wait."""
        began = time.perf_counter()
        route: Route | None = None
        try:
            route = self._pages.route(path)
            if route.row_here is None:
                return None
            answer = route.row_here(
                path, ViewRequest(self._checked(route, method.decode(), path, headers), headers, {})
            )
        except Exception as error:  # noqa: BLE001 - every error has an answer
            answer = refusal(error)
        self._tally.answered("other" if route is None else route.page, answer.status, time.perf_counter() - began)
        return answer

    async def _answer(self, route: Route, call: Call) -> Answer | None:
        scope = call.scope
        access = self._checked(route, scope["method"], scope["raw_path"] + scope["query_string"], scope["headers"])
        asked = ViewRequest(access, scope["headers"], call.query(route))
        if route.is_brief and not asked.query:
            return await route.respond(call, asked)
        if route.page == "watch":
            return await route.respond(call, asked)
        async with asyncio.timeout(self._longest_s):
            return await route.respond(call, asked)

    def _checked(self, route: Route, method: str, url: bytes, headers: Headers) -> Access:
        access = self._pages.access(route, headers)  # first: any other answer reveals which paths exist
        if method not in route.methods:
            allowed = [(b"allow", ", ".join(route.methods).encode())]
            raise Problem("wrong-method", f"This page takes {' and '.join(route.methods)}.", allowed)
        if len(url) > _MAX_URL:
            raise Problem("url-too-long", f"The URL is longer than {_MAX_URL} bytes. Use POST rows:batchGet instead.")
        return access


def refusal(error: Exception) -> Answer:
    """Makes the answer to an error: the caller's, the store's, or our own."""
    match error:
        case Problem():
            problem = error
        case TimeoutError():
            retry = [(b"retry-after", b"1")]
            problem = Problem("too-slow", "The answer took longer than serve.request_timeout_s allows.", retry)
        case WrongQuestion():
            kind = next(kind for cause, kind in _WRONG.items() if isinstance(error, cause))
            problem = Problem(kind, sentences(error.message, error.remedy))
        case NotLoaded():
            problem = Problem("not-ready", sentences(error.message, error.remedy), [RETRY_LOAD])
        case CdcError():
            log.warning("cannot answer", error=error.message, remedy=error.remedy)
            retry = [(b"retry-after", b"5")]
            problem = Problem("store-away", sentences(error.message, "try again later"), retry)
        case _:
            log.error(
                "internal error while answering a request",
                exc_info=error,
                remedy="report it with this traceback; other requests are not affected",
            )
            problem = Problem("our-bug", "The service's log says what went wrong. Please report it.")
    return Answer(problem.status, [(b"cache-control", b"no-store"), *problem.headers], problem.body(), PROBLEM_JSON)
