"""Who gets which page, and what a browser may do with it."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Generator
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from cdc.base.daemon.http import HealthServer
from cdc.base.daemon.pages import Reply, Request
from cdc.base.errors import SourceUnavailable
from cdc.ops.dashboard.board import MAX_WATCHERS, Board
from cdc.ops.dashboard.door import Door
from cdc.ops.dashboard.pages import DashboardPages
from tests.support.waiting import eventually

READER, SCRAPER, ROWS_ONLY = "reader-0123456789ab", "scraper-0123456789a", "rows-only-012345678"
STATIC = files("cdc.ops.dashboard") / "static"


class Deployment:
    """One that is as a test says."""

    name = "shop"

    def __init__(self) -> None:
        self.looks: list[bool] = []
        self.error: Exception | None = None
        self.closed = False

    def look(self, *, is_watched: bool) -> dict[str, Any]:
        self.looks.append(is_watched)
        if self.error is not None:
            raise self.error
        before = [(1000.0, 5.0), (1015.0, 7.0)] if len(self.looks) == 1 else []
        return {"name": self.name, "figures": {"lag_bytes": float(len(self.looks))}, "before": before}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


@pytest.fixture
def board(deployment: Deployment) -> Generator[Board, None, None]:
    board = Board([deployment])
    board.start()
    yield board
    board.close()
    eventually(lambda: deployment.closed)


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    path = tmp_path / "tokens.yaml"
    path.write_text(
        f"reader: {{token: {READER}, metrics: true, tables: [public.orders]}}\n"
        f"scraper: {{token: {SCRAPER}, metrics: true}}\nrows: {{token: {ROWS_ONLY}, tables: ['*']}}\n"
    )
    return str(path)


def inspect(deployment: int, table: str, key: str) -> dict[str, Any]:
    return {"deployment": deployment, "table": table, "key": key}


def pages(board: Board, door: Door | None = None) -> Callable[..., Reply | None]:
    shown = DashboardPages(board, door or Door("127.0.0.1", None, "http.tokens_file"), inspect)

    def ask(path: str, token: str = "", host: str = "127.0.0.1:8080") -> Reply | None:
        path, _, query = path.partition("?")
        headers = [(b"host", host.encode())]
        headers += [(b"authorization", f"Bearer {token}".encode())] if token else []
        return shown(Request(path, query, headers))

    return ask


def test_the_page_and_its_files_need_no_token_and_run_nothing_else(board: Board, tokens: str) -> None:
    ask = pages(board, Door("0.0.0.0", tokens, "http.tokens_file"))
    page = ask("/")
    assert page is not None
    assert isinstance(page.body, bytes)
    linked = re.findall(r'(?:src|href)="(/[^"#]*)"', page.body.decode())
    assert "/dashboard/app.js" in linked
    for path in linked:
        reply = ask(path)
        assert reply is not None
        assert reply.status == 200
        policy = dict(reply.headers)["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy


def test_other_pages_are_left_to_others(board: Board) -> None:
    ask = pages(board)
    assert [ask(path) for path in ("/metrics", "/dashboard", "/dashboard/nothing.js", "/dashboard/../pages.py")] == [
        None
    ] * 4


@pytest.mark.parametrize("path", ["/dashboard/state", "/dashboard/events", "/dashboard/key?table=public.orders&key=1"])
def test_data_need_what_metrics_need(board: Board, tokens: str, path: str) -> None:
    ask = pages(board, Door("0.0.0.0", tokens, "http.tokens_file"))
    for token, status in (("", 401), ("wrong-0123456789abc", 401), (ROWS_ONLY, 403), (READER, 200)):
        reply = ask(path, token)
        assert reply is not None
        assert reply.status == status, token
        if not isinstance(reply.body, bytes):
            reply.body.close()


def test_rows_are_for_tokens_that_name_the_table(board: Board, tokens: str) -> None:
    ask = pages(board, Door("0.0.0.0", tokens, "http.tokens_file"))
    for token, table, status in ((SCRAPER, "public.orders", 403), (READER, "public.other", 403)):
        reply = ask(f"/dashboard/key?table={table}&key=1", token)
        assert reply is not None
        assert reply.status == status
    reply = ask("/dashboard/key?table=public.orders&key=a%26b", READER)
    assert reply is not None
    assert json.loads(reply.body) == {"deployment": 0, "table": "public.orders", "key": "a&b"}  # type: ignore[arg-type]  # bytes here, never a file


def test_a_port_that_others_reach_shows_nothing_without_tokens(board: Board) -> None:
    reply = pages(board, Door("0.0.0.0", None, "http.tokens_file"))("/dashboard/state")
    assert reply is not None
    assert reply.status == 403
    assert b"Set http.tokens_file, or listen on 127.0.0.1" in reply.body


def test_a_page_that_is_asked_for_its_head_only_has_no_body(board: Board) -> None:
    shown = DashboardPages(board, Door("127.0.0.1", None, "http.tokens_file"), inspect)
    with HealthServer(
        "127.0.0.1", 0, CollectorRegistry(), lambda: (True, {}), more=lambda _: nullcontext(shown)
    ) as server:
        for path in ("/", "/dashboard/events"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
            connection.close()
    assert not board.is_full


def test_a_name_of_another_site_that_leads_here_is_refused(board: Board) -> None:
    reply = pages(board)("/dashboard/state", host="evil.example")
    assert reply is not None
    assert reply.status == 421


@pytest.mark.parametrize(
    "query", ["", "?table=a.b", "?key=1", "?table=a.b&key=1&deployment=1", "?deployment=-1&table=a&key=1"]
)
def test_a_question_that_lacks_something(board: Board, query: str) -> None:
    reply = pages(board)(f"/dashboard/key{query}")
    assert reply is not None
    assert reply.status == 400


def test_who_watches_is_told_of_the_past_and_of_each_look(board: Board, deployment: Deployment) -> None:
    events = board.events()
    assert b"retry" in next(events)
    first = next(events)
    while first.startswith(b":"):
        first = next(events)
    past, look = (each.partition(b"data: ")[2] for each in first.split(b"\n\n")[:2])
    assert json.loads(look)["data"]["name"] == "shop"
    samples = json.loads(past)["data"]
    assert samples["at"][:2] == [1000, 1015]  # what the first look learnt of the time before it
    assert samples["series"]["wal_bytes_s"][:3] == [5, 7, None]
    eventually(lambda: True in deployment.looks)
    second = next(events)
    assert second.startswith(b"event: look\n")
    assert b"event: past" not in second
    events.close()
    reply = pages(board)("/dashboard/state")
    assert reply is not None
    assert json.loads(reply.body)["deployments"][0]["name"] == "shop"  # type: ignore[arg-type]  # bytes here, never a file


@pytest.mark.parametrize("error", [SourceUnavailable("gone", remedy="start it"), RuntimeError("a bug")])
def test_a_look_that_fails_is_shown_and_ends_nothing(error: Exception) -> None:
    deployment = Deployment()
    deployment.error = error
    board = Board([deployment])
    board.start()
    board.recorders[0].touch()
    try:
        eventually(lambda: board.recorders[0].version > 0)
        assert json.loads(board.recorders[0].latest)["error"]["remedy"]
    finally:
        board.close()


def test_pages_that_are_open_are_counted(board: Board) -> None:
    opened = [board.events() for _ in range(MAX_WATCHERS)]
    for each in opened:
        next(each)
    reply = pages(board)("/dashboard/events")
    assert reply is not None
    assert reply.status == 429
    opened[0].close()
    reply = pages(board)("/dashboard/events")
    assert reply is not None
    assert reply.status == 200
    for each in opened:
        each.close()


def test_who_watches_is_let_go_when_the_token_is_taken_out(board: Board, tokens: str) -> None:
    reply = pages(board, Door("0.0.0.0", tokens, "http.tokens_file"))("/dashboard/events", READER)
    assert reply is not None
    assert not isinstance(reply.body, bytes)
    next(reply.body)
    Path(tokens).write_text(f"other: {{token: {SCRAPER}, metrics: true}}\n")
    assert len(list(reply.body)) <= 1


def test_nobody_looks_before_somebody_watches_where_that_is_asked(deployment: Deployment) -> None:
    board = Board([deployment], is_eager=False)
    board.start()
    try:
        assert deployment.looks == []
        events = board.events()
        next(events)
        eventually(lambda: deployment.looks)
        events.close()
    finally:
        board.close()


def test_no_file_makes_html_of_a_string_or_asks_elsewhere() -> None:
    for each in STATIC.iterdir():
        text = each.read_text()
        for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style="):
            assert banned not in text, f"{each.name}: {banned}"
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}, each.name
