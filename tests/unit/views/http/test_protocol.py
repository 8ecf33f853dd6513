"""The head of an answer as it is sent, and a connection whose requests come in any pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from cdc.base.web.problem import Headers
from cdc.views.http.protocol import Protocol, head_of
from cdc.views.query.answer import Answer

USUAL = [(b"date", b"now")]
ROUNDS = 2000
"""Rounds of the event loop after which an answer does not come any more."""
MOST = 32
"""Requests of one piece that are answered at once."""


def test_a_head() -> None:
    assert head_of(Answer(200, [(b"etag", b'"1"')], b"{}"), USUAL) == (
        b'HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: application/json\r\ncontent-length: 2\r\netag: "1"\r\n\r\n'
    )


def test_a_head_without_content() -> None:
    assert head_of(Answer(304, [(b"etag", b'"1"')], b""), USUAL) == (
        b'HTTP/1.1 304 Not Modified\r\ndate: now\r\netag: "1"\r\n\r\n'
    )


@pytest.mark.parametrize("value", [b"x\r\nset-cookie: y", b"x\ny", b"x\ry"])
def test_a_value_that_would_be_another_header(value: bytes) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_of(Answer(200, [(b"cdc-reason", value)], b""), USUAL)


class Wire(asyncio.Transport):
    """The client's end of a connection, and the service's pages."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.writes = 0
        self.asked: list[tuple[bytes, Headers]] = []
        self.is_shut = False
        config = uvicorn.Config(
            self.app, interface="asgi3", lifespan="off", log_config=None, access_log=False, server_header=False
        )
        config.load()
        self._service = Protocol(self.at_once, config=config, server_state=ServerState(), app_state={})
        self._service.connection_made(self)

    def at_once(self, method: bytes, path: bytes, headers: Headers) -> Answer | None:
        """Everything but ``/later``; what the caller's token may not read is forbidden."""
        self.asked.append((path, headers))
        if path == b"/later":
            return None
        if (b"authorization", b"Bearer no") in headers:
            return Answer(403, [], b"forbidden " + path)
        status = 404 if path == b"/none" else 304 if (b"if-none-match", path) in headers else 200
        return Answer(status, [(b"etag", path)], b"" if status == 304 else path)

    async def app(self, scope: Any, _: Any, send: Any) -> None:
        """Answers what was not answered at once, a little later."""
        await asyncio.sleep(0)
        answer = Answer(200, [(b"etag", scope["raw_path"])], scope["raw_path"])
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.all_headers()})
        await send({"type": "http.response.body", "body": answer.body})

    def send(self, *pieces: bytes) -> bytes:
        """Sends pieces that arrive one by one; returns everything that was answered by then."""
        for piece in pieces:
            self._service.data_received(piece)
        return self.written

    def stop_reading(self) -> None:
        """The client does not read what it gets."""
        self._service.pause_writing()

    def read_on(self) -> None:
        """The client reads again."""
        self._service.resume_writing()

    async def until(self, paths: Iterable[bytes]) -> None:
        """Waits for the answers to these paths, and for no others."""
        wanted = [*paths]
        for _ in range(ROUNDS):
            if self.written.count(b"HTTP/1.1 ") >= len(wanted):
                break
            await asyncio.sleep(0)
        assert [part.rpartition(b"\r\n\r\n")[2] for part in self.written.split(b"HTTP/1.1 ")[1:]] == wanted

    def write(self, data: Any) -> None:
        self.written += data
        self.writes += 1

    def is_closing(self) -> bool:
        return self.is_shut

    def close(self) -> None:
        self.is_shut = True

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def pause_reading(self) -> None:
        """Does nothing: a test sends what it likes."""

    def resume_reading(self) -> None:
        """Does nothing."""


def get(path: str, method: str = "GET", *more: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in ("Host: here", *more))
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


MIXED = [
    get("/a"),
    get("/b", "HEAD"),
    get("/none"),
    get("/b"),
    get("/b", "GET", "If-None-Match: /b"),
    get("/a", "HEAD", "If-None-Match: /b"),
    get("/b", "GET", "If-None-Match: /b"),
    get("/a", "GET", "Authorization: Bearer yes"),
    get("/a", "GET", "Authorization: Bearer no"),
    get("/a"),
    get("/a%20b"),
]


def test_requests_that_are_cut_anywhere_get_the_answers_that_each_gets_alone() -> None:
    async def run() -> None:
        alone = [Wire().send(each) for each in MIXED]
        assert [each[9:12] for each in alone] == [*b"200 200 404 200 304 200 304 200 403 200 200".split()]
        stream = b"".join(MIXED)
        assert Wire().send(stream) == b"".join(alone)
        assert Wire().send(*(bytes((each,)) for each in stream)) == b"".join(alone)
        for cut in range(1, len(stream)):
            assert Wire().send(stream[:cut], stream[cut:]) == b"".join(alone), cut

    asyncio.run(run())


def test_headers_that_are_sent_again_are_not_parsed_again_and_answers_go_out_together() -> None:
    async def run() -> None:
        wire = Wire()
        wire.send(get("/a"))
        wire.send(get("/a") + get("/none") + get("/c"))
        (_, first), *others = wire.asked
        assert [path for path, _ in others] == [b"/a", b"/none", b"/c"]
        assert all(headers is first for _, headers in others)
        assert wire.writes == 2
        wire.send(get("/a", "GET", "X: y"))
        assert wire.asked[-1] == (b"/a", [(b"host", b"here"), (b"x", b"y")])

    asyncio.run(run())


@pytest.mark.parametrize(
    "path", ["/later", "/a?limit=1", "/a#b", "http://here/a", "/\xe4", "*"], ids=lambda path: ascii(path)
)
def test_a_path_that_is_not_plain_is_parsed(path: str) -> None:
    async def run() -> None:
        expected, wire = Wire(), Wire()
        expected.send(get(path))
        wire.send(get("/a"), get("/a"))
        written = len(wire.written)
        wire.send(get(path))
        for _ in range(9):
            await asyncio.sleep(0)
        assert wire.written[written:] == expected.written
        assert wire.is_shut == expected.is_shut

    asyncio.run(run())


def test_an_answer_that_takes_longer_holds_up_those_after_it() -> None:
    async def run() -> None:
        wire = Wire()
        wire.send(get("/a") + get("/b") + get("/later") + get("/c"), get("/d"))
        assert wire.written.count(b"HTTP/1.1 ") == 2
        await wire.until([b"/a", b"/b", b"/later", b"/c", b"/d"])
        wire.send(get("/e"))
        await wire.until([b"/a", b"/b", b"/later", b"/c", b"/d", b"/e"])

    asyncio.run(run())


def test_many_requests_in_one_piece_are_answered_in_their_order() -> None:
    async def run() -> None:
        wire, paths = Wire(), [f"/{number}" for number in range(3 * MOST)]
        wire.send(b"".join(map(get, paths)))
        assert wire.written.count(b"HTTP/1.1 ") == len(wire.asked) == MOST
        await wire.until([path.encode() for path in paths])

    asyncio.run(run())


def test_nothing_is_answered_after_a_request_that_closes() -> None:
    async def run() -> None:
        wire = Wire()
        wire.send(get("/a") + get("/a") + get("/b", "GET", "Connection: close") + get("/a"), get("/a"))
        await wire.until([b"/a", b"/a", b"/b"])
        for _ in range(9):
            await asyncio.sleep(0)
        await wire.until([b"/a", b"/a", b"/b"])
        assert wire.is_shut

    asyncio.run(run())


def test_a_client_that_does_not_read_gets_no_more_until_it_does() -> None:
    async def run() -> None:
        wire = Wire()
        wire.send(get("/a"), get("/a"))
        wire.stop_reading()
        wire.send(get("/b") + get("/c"))
        assert wire.written.count(b"HTTP/1.1 ") == 2
        wire.read_on()
        await wire.until([b"/a", b"/a", b"/b", b"/c"])

    asyncio.run(run())
