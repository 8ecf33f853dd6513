"""What a connection is answered: at once or by uvicorn's way, one request or many, and what becomes of it then."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import httpx
import pytest

from cdc.base.web.problem import Headers
from cdc.views.http import http
from cdc.views.http.application import Service
from tests.integration.views.http.conftest import Serve, serving
from tests.support.certificates import Authority
from tests.support.planted_view import PlantedView

ROW = "/v1/tables/public.users/rows/1"
COUNT = "/v1/tables/public.users/count"
HOST = {"host": "127.0.0.1"}


class Said(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Connection:
    """Requests and answers, byte by byte."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw = raw
        self._read: BinaryIO = raw.makefile("rb")

    def send(self, *requests: bytes) -> None:
        self.raw.sendall(b"".join(requests))

    def answer(self, *, has_body: bool = True) -> Said:
        """The next one."""
        status = int(self._read.readline().split()[1])
        headers = dict(line.decode().rstrip().split(": ", 1) for line in iter(self._read.readline, b"\r\n"))
        size = int(headers.get("content-length", 0)) if has_body else 0
        return Said(status, headers, self._read.read(size))

    def is_closed(self) -> bool:
        return self._read.read(1) == b""


def request(path: str, method: str = "GET", version: str = "1.1", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in {**HOST, **headers}.items()]
    return f"{method} {path} HTTP/{version}\r\n{''.join(lines)}\r\n".encode()


@contextmanager
def connected(client: httpx.Client) -> Iterator[Connection]:
    with closing(socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=20)) as raw:
        yield Connection(raw)


@contextmanager
def secured(address: tuple[str, int]) -> Iterator[Connection]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        closing(socket.create_connection(address, timeout=20)) as raw,
        context.wrap_socket(raw, suppress_ragged_eofs=True) as wrapped,
    ):
        yield Connection(wrapped)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each plain request was answered at once."""
    seen: list[bool] = []
    real = Service.at_once

    def spied(self: Service, method: bytes, path: bytes, headers: Headers) -> object:
        answer = real(self, method, path, headers)
        seen.append(answer is not None)
        return answer

    monkeypatch.setattr(Service, "at_once", spied)
    return seen


@pytest.fixture
def client(view: PlantedView, serve: Serve, at_once: list[bool]) -> httpx.Client:
    assert at_once == []
    view.mark_unreadable("public.users", {"id": 9}, "it is not JSON")
    return serve(view.store)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("public.users/rows/", None),  # what clients make of rows/. is the row of another key where keys are text
        ("public.stock/rows/eu/", None),
        ("public.stock/rows/./1", {"region": ".", "item": 1}),
        ("public.stock/rows/%2e/1", {"region": ".", "item": 1}),
        ("public.stock/rows/../1", {"region": "..", "item": 1}),
        ("public.stock/rows/%2E%2e/1", {"region": "..", "item": 1}),
        ("public.stock/rows//1", {"region": "", "item": 1}),
        ("events/rows/", ""),
        ("events/rows/.", "."),
        ("events/rows/%2e%2E", ".."),
    ],
)
def test_keys_that_clients_take_out_of_a_path_are_asked_for_by_a_parameter(
    view: PlantedView, serve: Serve, path: str, named: object
) -> None:
    """The row of another key was answered, or another page."""
    for key in ("", ".", ".."):
        view.put("public.stock", {"region": key, "item": 1, "amount": key})
        view.put_raw("events", key.encode(), b'{"n": "%b"}' % key.encode())
    client = serve(view.store)
    with connected(client) as connection:  # as it is: httpx would take them out
        connection.send(request(f"/v1/tables/{path}"))
        said = connection.answer()
    detail = json.loads(said.body)["detail"]
    assert (said.status, json.loads(said.body)["type"]) == (400, "malformed-key"), said
    if named is not None:
        got = client.get(detail.rpartition(" ")[2])
        assert got.status_code == 200, (detail, got.text)
        assert got.json().get("amount", got.json().get("n")) == (named["region"] if isinstance(named, dict) else named)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (ROW, {}, 200),
        (ROW, {"If-None-Match": "*"}, 304),
        ("/v1/tables/public.users/rows/77", {}, 404),
        ("/v1/tables/public.users/rows/9", {}, 502),
        ("/v1/tables/public.users/rows/x", {}, 400),
        ("/v1/tables/public.nothing/rows/1", {}, 404),
        ("/v1/tables/%ff/rows/1", {}, 404),
        (ROW, {"host": "evil.example"}, 421),
        ("/v1/tables/public.users/rows/" + "1" * 9000, {}, 414),
    ],
)
def test_both_ways_give_the_same_answer(
    client: httpx.Client, at_once: list[bool], method: str, path: str, headers: dict[str, str], status: int
) -> None:
    short = client.request(method, path, headers=headers)
    assert at_once == [True]
    long = client.request(method, path, headers={**headers, "Origin": "http://shop.example"})
    assert at_once == [True]
    assert short.status_code == long.status_code == status
    assert short.content == long.content
    assert bool(short.content) == (method == "GET" and status != 304)
    changing = {"cdc-age", "date"}
    found, other = ({k: v for k, v in each.headers.items() if k not in changing} for each in (short, long))
    assert found == other
    assert "date" in short.headers


def test_requests_in_one_piece_are_answered_in_their_order(client: httpx.Client, at_once: list[bool]) -> None:
    pairs = [(ROW, b'{"id":1,"name":"Ada","city":"London"}'), (COUNT, b'{"count":3}\n'), (ROW.replace("/1", "/2"), b"")]
    paths = [path for path, _ in pairs] * 40
    with connected(client) as connection:
        connection.send(*map(request, paths))
        found = [connection.answer() for _ in paths]
        connection.send(request(ROW))
        assert connection.answer().body == pairs[0][1]
    assert {each.status for each in found} == {200}
    assert [each.body for each in found[0::3]] == [pairs[0][1]] * 40
    assert [each.body for each in found[1::3]] == [pairs[1][1]] * 40
    assert all(b'"Bob"' in each.body for each in found[2::3])
    assert True in at_once
    assert False in at_once


def test_a_client_that_asks_much_and_reads_late(view: PlantedView, serve: Serve) -> None:
    view.put("public.users", {"id": 1, "name": "x" * 100_000, "city": "y"})
    client = serve(view.store)
    with connected(client) as connection:
        connection.send(*[request(ROW)] * 300)
        for _ in range(20):
            assert client.get(COUNT).json() == {"count": 3}  # the others are answered meanwhile
        sizes = {len(connection.answer().body) for _ in range(300)}
    assert len(sizes) == 1
    assert min(sizes) > 100_000


def test_a_head_in_pieces(client: httpx.Client) -> None:
    with connected(client) as connection:
        for byte in request(ROW):
            connection.send(bytes((byte,)))
        assert connection.answer().status == 200


@pytest.mark.parametrize(("version", "headers"), [("1.0", {}), ("1.1", {"connection": "close"})])
def test_a_connection_for_one_request(client: httpx.Client, version: str, headers: dict[str, str]) -> None:
    with connected(client) as connection:
        connection.send(request(ROW, version=version, **headers))
        said = connection.answer()
        assert (said.status, said.headers["connection"]) == (200, "close")
        assert connection.is_closed()


def test_a_request_with_a_body_that_nobody_wants(client: httpx.Client) -> None:
    with connected(client) as connection:
        connection.send(request(ROW, content_length="5"), b"hello", request(ROW))
        assert [connection.answer().status for _ in range(2)] == [200, 200]
        connection.send(request(ROW, transfer_encoding="chunked"), b"5\r\nhello\r\n0\r\n\r\n", request(ROW, "HEAD"))
        assert connection.answer().status == 200
        assert connection.answer(has_body=False).status == 200


def test_what_is_counted(client: httpx.Client, at_once: list[bool]) -> None:
    for path in (ROW, "/v1/tables/public.users/rows/77"):
        client.get(path)
    said = client.get("/metrics").text
    assert 'cdc_serve_requests_total{page="row",status="2xx"} 1.0' in said
    assert 'cdc_serve_requests_total{page="row",status="4xx"} 1.0' in said
    assert at_once[:2] == [True, True]


def test_a_client_that_is_idle_does_not_hold_up_the_end(
    view: PlantedView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS it would have to say that it closes, too. An answer that is being read goes on."""
    monkeypatch.setattr(http, "STOP_S", 60)
    size = 20_000_000
    view.put("public.users", {"id": 1, "name": "x" * size, "city": "y"})
    signed = Authority(tmp_path).sign("localhost")
    settings = {"tls_cert": str(signed.certificate), "tls_key": str(signed.key)}
    with ExitStack() as clients:
        with serving(view.store, settings) as client:
            address = client.base_url.host, client.base_url.port or 0
            idle, slow = (clients.enter_context(secured(address)) for _ in range(2))
            idle.send(request(COUNT))
            assert idle.answer().body == b'{"count":3}\n'
            slow.send(request(ROW))
            reading = clients.enter_context(ThreadPoolExecutor(1)).submit(_end_of, idle, slow)
            began = time.monotonic()
        took_s = time.monotonic() - began
        assert len(reading.result(20).body) > size
    assert took_s < 15, "the other side has half a minute to say that it closes, too"


def _end_of(idle: Connection, slow: Connection) -> Said:
    assert idle.is_closed()
    return slow.answer()
