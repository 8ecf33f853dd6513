"""The HTTP resources of the dashboard: the page, its files, and the data that it shows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from importlib.resources import files
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import orjson
import structlog

from cdc.base.daemon.pages import Reply, Request
from cdc.base.web.problem import PROBLEM_JSON, Problem
from cdc.ops.dashboard.board import MAX_WATCHERS, Board
from cdc.ops.dashboard.door import Door

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""Allows no inline script, no inline style, nothing from other hosts, and no string that is turned into HTML."""

SECURITY: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Assets:
    """The static files, read once; about 60 KB together."""

    def __init__(self) -> None:
        folder = files("cdc.ops.dashboard") / "static"
        self._found: dict[str, tuple[str, bytes, str]] = {}
        for each in folder.iterdir():
            kind = _TYPES.get(each.name.rpartition(".")[2])
            if kind is not None:
                content = each.read_bytes()
                self._found[each.name] = kind, content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    def reply(self, name: str, known: bytes = b"") -> Reply | None:
        """Returns a file; None if there is no file of this name.

        Args:
            name: the file's name.
            known: the request's If-None-Match header.
        """
        if name not in self._found:
            return None
        kind, content, tag = self._found[name]
        headers = [*SECURITY, ("Cache-Control", "no-cache"), ("ETag", tag)]
        if known == tag.encode():
            return Reply(304, headers, b"")
        return Reply(200, [("Content-Type", kind), *headers], content)


Inspect: TypeAlias = Callable[[int, str, str], dict[str, Any]]
"""Takes the number of a deployment, a table and a key; returns what is known about the key."""

ROOT: Final = "/dashboard/"

log = structlog.get_logger("cdc.dashboard")


class DashboardPages:
    """Answers requests for the dashboard, from any thread.

    Args:
        board: the deployments to show.
        door: decides who may see them.
        inspect: looks a key up.
    """

    def __init__(self, board: Board, door: Door, inspect: Inspect) -> None:
        self._board = board
        self._door = door
        self._inspect = inspect
        self._assets = Assets()

    def __call__(self, request: Request) -> Reply | None:
        """Returns the answer; None if the path does not belong to the dashboard."""
        if request.path == "/":
            return self._file("index.html", request)
        if not request.path.startswith(ROOT):
            return None
        name = request.path.removeprefix(ROOT)
        try:
            match name:
                case "state":
                    return self._state(request)
                case "events":
                    return self._events(request)
                case "key":
                    return self._key(request)
            return self._file(name, request)
        except Problem as problem:
            return _refusal(problem)
        except Exception:
            log.error(
                "internal error while answering a page of the dashboard",
                exc_info=True,
                remedy="report it with this traceback; everything else continues",
            )
            return _refusal(Problem("our-bug", "This request failed, and the log says why. Please report it."))

    def _file(self, name: str, request: Request) -> Reply | None:
        return self._assets.reply(name, _header(request, b"if-none-match"))

    def _state(self, request: Request) -> Reply:
        self._door.access(request.headers)
        for each in self._board.recorders:
            each.touch()
        looks = b",".join(each.latest for each in self._board.recorders)
        return _json(b'{"deployments":[%b]}\n' % looks)

    def _events(self, request: Request) -> Reply:
        self._door.access(request.headers)
        is_open = self._door.still_open(request.headers)
        headers = [
            ("Content-Type", "text/event-stream; charset=utf-8"),
            ("Cache-Control", "no-store"),
            ("X-Accel-Buffering", "no"),
            *SECURITY,
        ]
        if self._board.is_full:
            raise Problem(
                "too-many-watches",
                f"{MAX_WATCHERS} pages are already open, which is the limit. Close one, or try again later.",
                [(b"retry-after", b"10")],
            )
        return Reply(200, headers, _while_open(self._board.events(), is_open))

    def _key(self, request: Request) -> Reply:
        access = self._door.access(request.headers)
        given = dict(parse_qsl(request.query, keep_blank_values=True))
        number, table, key = given.get("deployment", "0"), given.get("table", ""), given.get("key", "")
        if (
            not table
            or not key
            or not (number.isascii() and number.isdigit())
            or int(number) >= len(self._board.recorders)
        ):
            raise Problem("bad-parameter", "The request needs table=, key=, and the number of a deployment.")
        access.check(table)
        return _json(orjson.dumps(self._inspect(int(number), table, key)) + b"\n")


def _while_open(events: Generator[bytes, None, None], is_open: Callable[[], bool]) -> Generator[bytes, None, None]:
    """Yields events until the caller's token no longer allows it: a page stays open for hours."""
    try:
        for each in events:
            if not is_open():
                return
            yield each
    finally:
        events.close()


def _json(body: bytes) -> Reply:
    return Reply(200, [("Content-Type", "application/json"), ("Cache-Control", "no-store"), *SECURITY], body)


def _refusal(problem: Problem) -> Reply:
    headers = [(name.decode(), value.decode()) for name, value in problem.headers]
    kind = ("Content-Type", PROBLEM_JSON.decode())
    return Reply(problem.status, [kind, ("Cache-Control", "no-store"), *headers, *SECURITY], problem.body())


def _header(request: Request, name: bytes) -> bytes:
    return next((value for key, value in request.headers if key == name), b"")
