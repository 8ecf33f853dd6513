"""A connection: uvicorn's protocol, with limits of our own, and a fast path for answers that need no waiting.

uvicorn makes a task, a queue and a dozen objects for each request, and writes head and body separately. All of that
costs more than looking up a row. So a request that has no body and needs no waiting is answered as soon as its head was
read, in one piece. Every other request goes uvicorn's way. Both ways give the same answers: ``Service`` makes them.

A connection mostly sends the same headers again with another path. Such a request is not even parsed: its headers are
compared with those of the request before, byte by byte. Answers to requests that came together go out together.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, cast

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from cdc.base.web.patience import Patience
from cdc.base.web.problem import Header, Headers
from cdc.views.query.answer import Answer, header_lines

MAX_HEAD: Final = 64 * 1024
"""Bytes of a request's line and headers together, or of the framing of its body; httptools itself has no limit."""
SLOWEST_HEAD_S: Final = 10.0
"""How long a request's head may take to arrive, also on a connection that was used before. A connection that never asks
is closed."""
IDLE_S: Final = 10
"""How long a connection may be idle between two requests."""
_AT_ONCE: Final = 32
"""How many requests of one received piece take the fast path. A client that sends thousands of requests in one piece
must not hold up the others for longer than a millisecond."""

_NOT_PLAIN: Final = frozenset((b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"origin"))
"""Headers of requests that have a body, or that need more than a page to answer: CORS, ``Expect``, upgrades."""

_JOINED: Final = 64 * 1024
"""Bytes of answers after which they are sent, so that a client that does not read them is noticed before more are made.
"""
_LINE: Final = re.compile(rb"(GET|HEAD) (/[A-Za-z0-9._~%/:@!$&'()*+,;=-]*) HTTP/1\.1\r\n")
"""A request line that the parser would accept as well, without a query."""
_END: Final = b"\r\n\r\n"

AtOnce: TypeAlias = Callable[[bytes, bytes, Headers], Answer | None]
"""Method, path and headers → the answer; None when the answer has to wait for something."""

log = structlog.get_logger("cdc.serve")


class _OnePiece:
    """The transport for uvicorn's request cycles. It holds back the head of an answer until the body comes, so that
    both go out in one system call. If the body takes longer, the head goes out as soon as the event loop is idle.

    Args:
        transport: the connection's transport.
        loop: the connection's event loop.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""
        self.is_closing: Final = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(b"HTTP/"):
            self._held = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def flush(self) -> None:
        held, self._held = self._held, b""
        if held:
            self._transport.write(held)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _Repeated(NamedTuple):
    """The headers of a plain request that was answered at once: as they came, with the end of the head, and parsed."""

    raw: bytes
    headers: Headers


class Protocol(HttpToolsProtocol):
    """Limits the size of heads, closes connections that never ask, and lets the application cut a connection off.

    Args:
        at_once: makes answers that need no waiting.
        uvicorns: the arguments that uvicorn gives its protocol.
    """

    def __init__(self, at_once: AtOnce, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._at_once = at_once
        self._patience = Patience(self.loop)
        self._is_in_head, self._is_plain = True, True
        self._is_answering, self._was_at_once = False, False
        self._is_between = True
        self._repeated: _Repeated | None = None
        self._loose = 0
        self._left = _AT_ONCE

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._one_piece = _OnePiece(transport, self.loop)
        self._patience.wait(SLOWEST_HEAD_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._left = _AT_ONCE
        if self._is_between:
            data = self._answer_repeated(data)
            data = self._learn(data) if data else data
        if data:
            self._parse(data)

    def _learn(self, data: bytes) -> bytes:
        """Parses the first request, and answers those after it that repeat its headers; returns what is left."""
        line, ends = _LINE.match(data), data.find(_END) + len(_END)
        if line is None or ends < len(_END):
            return data
        self._parse(data[:ends])
        if not (self._is_between and self._was_at_once):
            self._repeated = None
            return data[ends:]
        self._repeated = _Repeated(data[line.end() : ends], self.headers)
        return self._answer_repeated(data[ends:])

    def _answer_repeated(self, data: bytes) -> bytes:
        """Answers the requests at the front that repeat the headers of the request before; returns what is left."""
        if (repeated := self._repeated) is None:
            return data
        at, answers, size = 0, list[bytes](), 0
        while at < len(data) and self._is_free():
            line = _LINE.match(data, at)
            if line is None or not data.startswith(repeated.raw, line.end()):
                break
            method, path = line.groups()
            answer = self._at_once(method, path, repeated.headers)
            if answer is None:
                break
            at, self._left = line.end() + len(repeated.raw), self._left - 1
            answers.append(self._written(method, answer))
            size += len(answers[-1])
            if size > _JOINED:
                self.transport.write(b"".join(answers))
                answers, size = [], 0
        if at:
            self._unset_keepalive_if_required()
            self.transport.write(b"".join(answers))
            self._patience.wait(SLOWEST_HEAD_S, self.transport.close)
        return data[at:]

    def _written(self, method: bytes, answer: Answer) -> bytes:
        head = head_of(answer, self.server_state.default_headers)
        return head + answer.body if method == b"GET" else head

    def _parse(self, data: bytes) -> None:
        self._loose += len(data)
        super().data_received(data)
        if self._loose <= MAX_HEAD or self.transport.is_closing():
            return
        if self._is_answering or not self._is_in_head:
            self.transport.abort()  # an answer is under way or sent: the client would take a 431 for a part of it
            return
        log.warning(
            "a request was refused: its head is too large",
            limit=MAX_HEAD,
            remedy="let the client send fewer or shorter headers; put long keys into the body of rows:batchGet",
        )
        self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]  # ours
        self._is_plain, self._was_at_once, self._is_between = True, False, False
        self._repeated = None
        if not self._is_in_head:
            self._is_in_head = True
            self._patience.wait(SLOWEST_HEAD_S, self.transport.abort)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # skip trailers, which come after the body: they would pass for headers
            name = name.lower()
            if name in _NOT_PLAIN:
                self._is_plain = False
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head, self._is_answering, self._loose = False, True, 0
        self._patience.rest()
        if not (self._is_plain and self._is_free() and self._answer_at_once()):
            super().on_headers_complete()
            # uvicorn writes head and body separately: join them.
            self.cycle.transport = cast(asyncio.Transport, self._one_piece)

    def on_body(self, body: bytes) -> None:
        self._loose = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._loose, self._is_between = 0, True
        if not self._was_at_once:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._one_piece.flush()  # an answer to HEAD has no body, so its head is still held back
        super().on_response_complete()
        self._is_answering = not self.cycle.response_complete
        if not self._is_answering:
            # uvicorn's own timer for the next request stops at the first byte, even if no request follows.
            self._patience.wait(SLOWEST_HEAD_S, self.transport.close)

    def _is_free(self) -> bool:
        """Whether an answer may be written now: none is under way, and the client reads what it gets."""
        return (
            not self._is_under_way()
            and self._left > 0
            and not self.flow.write_paused
            and not self.transport.is_closing()
            and (self.limit_concurrency is None or len(self.connections) < self.limit_concurrency)
        )

    def _is_under_way(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _answer_at_once(self) -> bool:
        """Answers on the fast path; returns False if the request has to go uvicorn's way."""
        parser, url = self.parser, self.url
        method = parser.get_method()
        if method not in (b"GET", b"HEAD") or b"?" in url or b"#" in url or not url.startswith(b"/"):
            return False
        if parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return False
        answer = self._at_once(method, url, self.headers)
        if answer is None:
            return False
        self.transport.write(self._written(method, answer))
        self._left -= 1
        self._was_at_once, self._is_answering = True, False
        self._patience.wait(SLOWEST_HEAD_S, self.transport.close)
        return True


def head_of(answer: Answer, usual: Headers) -> bytes:
    """Writes the status line and the headers.

    Args:
        answer: the answer.
        usual: headers of every answer.

    Raises:
        ValueError: a header has a line break.
    """
    return b"%b%b%b\r\n" % (STATUS_LINE[answer.status], _usual_lines(*usual), answer.lines())


@lru_cache(maxsize=2)
def _usual_lines(*usual: Header) -> bytes:
    """Writes headers that change once a second."""
    return header_lines(usual)
