"""The ASGI application: what is done with every request, and what is answered when something is wrong.

There is no framework between the server and the pages. A page takes checked values and gives bytes, so a framework's
routing, validation and serialization would be paid for and not used: CONTRIBUTING.md has the measurement.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, cast

import structlog
from starlette.middleware.cors import CORSMiddleware

from cdc.base.errors import CdcError
from cdc.base.web.problem import PROBLEM_JSON, Kind, Problem, sentences
from cdc.views.http.pages import Call, Pages, Route
from cdc.views.http.tally import Tally
from cdc.views.query.answer import Answer
from cdc.views.query.desk import Desk, ViewRequest
from cdc.views.query.readiness import RETRY_LOAD
from cdc.views.table.errors import NotLoaded, UnknownTable, WrongCursor, WrongKey, WrongQuestion

App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_MAX_URL: Final = 8192
"""Bytes; what most servers and proxies take."""
_GRACE_S: Final = 1.0
"""Waiting for ``min_lsn`` may take a whole request's time, and is to end with its own answer."""
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
    """Everything that one process answers.

    Args:
        desk: what it is answered from.
        pages: by path.
        tally: counts what is answered.
    """

    def __init__(self, desk: Desk, pages: Pages, tally: Tally) -> None:
        self._desk = desk
        self._pages = pages
        self._tally = tally
        self._longest_s = desk.settings.request_timeout_s + _GRACE_S

    def app(self) -> App:
        """For an ASGI server."""
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
        """One request."""
        began = time.perf_counter()
        route: Route | None = None
        try:
            route = self._pages.route(scope["raw_path"])
            answer = await self._answer(route, Call(scope, receive, send))
        except Exception as error:  # noqa: BLE001 - each of them has its answer
            answer = refusal(error)
        if answer is None:
            return  # it was sent while it was made
        self._tally.answered("other" if route is None else route.page, answer.status, time.perf_counter() - began)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.all_headers()})
        await send({"type": "http.response.body", "body": answer.body})

    def at_once(self, scope: Mapping[str, Any]) -> Answer | None:
        """The answer to a request without a body, where the store is read in microseconds; None where it may wait."""
        began = time.perf_counter()
        route: Route | None = None
        try:
            route = self._pages.route(scope["raw_path"])
            if not (route.is_brief and self._desk.is_local):
                return None
            answer = _without_waiting(self._answer(route, Call(scope, None, None)))
        except Exception as error:  # noqa: BLE001 - each of them has its answer
            answer = refusal(error)
        self._tally.answered("other" if route is None else route.page, answer.status, time.perf_counter() - began)
        return answer

    async def _answer(self, route: Route, call: Call) -> Answer | None:
        scope = call.scope
        access = self._pages.access(route, scope["headers"])  # first: other answers tell which paths there are
        if scope["method"] not in route.methods:
            allowed = [(b"allow", ", ".join(route.methods).encode())]
            raise Problem("wrong-method", f"This page takes {' and '.join(route.methods)}.", allowed)
        if len(scope["raw_path"]) + len(scope["query_string"]) > _MAX_URL:
            raise Problem("url-too-long", f"The URL is longer than {_MAX_URL} bytes. POST rows:batchGet takes more.")
        asked = ViewRequest(access, scope["headers"], call.query(route))
        if route.is_brief and not asked.query:
            return await route.respond(call, asked)
        if route.page == "watch":
            return await route.respond(call, asked)
        async with asyncio.timeout(self._longest_s):
            return await route.respond(call, asked)


def _without_waiting(answering: Coroutine[Any, Any, Answer | None]) -> Answer:
    """What a coroutine gives that never waits: an event loop's task would cost as much as all that it does."""
    try:
        answering.send(None)
    except StopIteration as done:
        return cast(Answer, done.value)
    answering.close()
    raise AssertionError("a page that takes microseconds waited for something")


def refusal(error: Exception) -> Answer:
    """The answer to what went wrong: ours, the store's, or the caller's."""
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
                remedy="report it with this traceback; all else goes on",
            )
            problem = Problem("our-bug", "The service's log says what went wrong. Please report it.")
    return Answer(problem.status, [(b"cache-control", b"no-store"), *problem.headers], problem.body(), PROBLEM_JSON)
