"""A wire to a Kafka broker that a test can spoil: it knows requests and answers, and loses, delays or repeats them.

Each message is a size of four bytes and that many bytes. A request begins with its kind, version, correlation id and
the client's name; an answer begins with the correlation id of its request.
https://kafka.apache.org/protocol#protocol_messages
"""

from __future__ import annotations

import enum
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final, NamedTuple, Self

from cdc.lab.stack.embedded import HOST

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28

_RESET: Final = struct.pack("ii", 1, 0)
"""With this SO_LINGER, ``close`` resets the connection instead of ending it."""
_CHUNK: Final = 1 << 14


class Fate(enum.Enum):
    """What becomes of a request."""

    PASS = enum.auto()
    LOSE = enum.auto()
    """The connection is reset, and the broker never sees the request."""
    LOSE_ANSWER = enum.auto()
    """The broker does what is asked; then the connection is reset, and the client never learns of it."""
    REPEAT = enum.auto()
    """The broker gets it twice: from this connection, and at the same time from another one."""
    LATE = enum.auto()
    """The connection is reset. The broker gets the request from another one, at ``Wire.deliver``."""


class Request(NamedTuple):
    """What a client, or another broker, sends.

    Attributes:
        kind: its API key.
        version: of that API.
        client: the name that the client gives itself.
        frame: the whole message, its size included.
    """

    kind: int
    version: int
    client: str
    frame: bytes


def _nobody(_client: str) -> bool:
    return False


def everything_passes(_request: Request) -> Fate:
    """The fate of each request on a wire that nobody spoils."""
    return Fate.PASS


class KafkaWire:
    """Listens on a port of its own while the ``with`` block lasts; a broker advertises that port as its own.

    Attributes:
        port: where it listens.
        target: the port of the broker.
        fate: decides about each request; called by many threads.
        late: requests that came to be ``LATE``, until they are delivered.
        seen: how many requests came, by kind.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        self.fate: Callable[[Request], Fate] = everything_passes
        self.late: list[Request] = []
        self.seen: Counter[int] = Counter()
        self._pause_s, self._bytes_per_s = 0.0, 0.0
        self._open_up, self._open_down, self._whole = threading.Event(), threading.Event(), threading.Event()
        self._is_cut_off: Callable[[str], bool] = _nobody
        self._connections: set[_Connection] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.heal()

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, name="wire", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._listener.close()
        self.heal()
        self.reset()

    def slow(self, *, pause_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        """Keep each message for so long, and let so many bytes a second through on each connection; 0 is no limit."""
        self._pause_s, self._bytes_per_s = pause_s, bytes_per_s

    def stop(self, *, up: bool = False, down: bool = False) -> None:
        """Hold what clients send (``up``), or what the broker answers (``down``); connections stay open."""
        for direction, is_meant in ((self._open_up, up), (self._open_down, down)):
            if is_meant:
                direction.clear()

    def cut_off(self, is_meant: Callable[[str], bool]) -> None:
        """Hold what goes either way between the broker and these clients, by name; connections stay open."""
        self._is_cut_off = is_meant
        self._whole.clear()

    def reset(self) -> None:
        """Reset all connections, as a firewall does that has forgotten them."""
        with self._lock:
            connections = [*self._connections]
        for each in connections:
            each.reset()

    def heal(self) -> None:
        """Let everything through again; what was held goes on its way."""
        self.fate = everything_passes
        self.slow()
        self._is_cut_off = _nobody
        for each in (self._open_up, self._open_down, self._whole):
            each.set()

    def deliver(self) -> list[bytes]:
        """Give the broker what is late, in order, each from a connection of its own; returns its answers."""
        late, self.late = self.late, []
        return [self._ask(each.frame) for each in late]

    def _ask(self, frame: bytes) -> bytes:
        with closing(socket.create_connection((HOST, self.target))) as alone:
            alone.sendall(frame)
            return _message(alone)

    def repeat(self, request: Request) -> None:
        """Give the broker a copy, at the same time, from a connection of its own; nobody reads the answer."""

        def ask() -> None:
            with suppress(OSError):
                self._ask(request.frame)

        threading.Thread(target=ask, daemon=True).start()

    def pass_on(self, message: bytes, to: socket.socket, client: str, *, is_up: bool) -> None:
        """Send a client's message, or an answer to it, as fast as the wire lets it through."""
        (self._open_up if is_up else self._open_down).wait()
        if self._is_cut_off(client):
            self._whole.wait()
        if self._pause_s:
            self._over.wait(self._pause_s)
        if not self._bytes_per_s:
            to.sendall(message)
            return
        for start in range(0, len(message), _CHUNK):
            part = message[start : start + _CHUNK]
            to.sendall(part)
            self._over.wait(len(part) / self._bytes_per_s if self._bytes_per_s else 0)

    def _listen(self) -> None:
        with suppress(OSError):
            while not self._over.is_set():
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection((HOST, self.target))
                except OSError:  # the broker is down, and so is its wire
                    near.close()
                    continue
                connection = _Connection(self, near, far)
                with self._lock:
                    self._connections = {each for each in self._connections if not each.is_over} | {connection}
                connection.start()


class _Connection:
    """One client's connection through a wire, with a thread for each direction."""

    def __init__(self, wire: KafkaWire, near: socket.socket, far: socket.socket) -> None:
        self._wire, self._near, self._far = wire, near, far
        self._client = ""
        self._unanswered: set[int] = set()
        self.is_over = False

    def start(self) -> None:
        for direction in (self._up, self._down):
            threading.Thread(target=self._run, args=(direction,), daemon=True).start()

    def reset(self) -> None:
        """End it without a word, on both sides."""
        self.is_over = True
        for each in (self._near, self._far):
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.shutdown(socket.SHUT_RD)  # wakes whoever reads; to write would end it with a word
            each.close()

    def _run(self, direction: Callable[[], None]) -> None:
        with suppress(OSError):
            direction()
        self.reset()

    def _up(self) -> None:
        while message := _message(self._near):
            request = _request(message)
            self._client = request.client
            self._wire.seen[request.kind] += 1
            fate = self._wire.fate(request)
            if fate is Fate.LATE:
                self._wire.late.append(request)
            if fate in (Fate.LOSE, Fate.LATE):
                return
            if fate is Fate.LOSE_ANSWER:
                self._unanswered.add(_correlation(message, 8))
            if fate is Fate.REPEAT:
                self._wire.repeat(request)
            self._wire.pass_on(message, self._far, self._client, is_up=True)

    def _down(self) -> None:
        while message := _message(self._far):
            if _correlation(message, 4) in self._unanswered:
                return
            self._wire.pass_on(message, self._near, self._client, is_up=False)


def _message(connection: socket.socket) -> bytes:
    """The next message with its size; empty at the end."""
    size = connection.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        return b""
    length = int.from_bytes(size, "big")
    body = connection.recv(length, socket.MSG_WAITALL)
    return size + body if len(body) == length else b""


def _correlation(message: bytes, at: int) -> int:
    return int.from_bytes(message[at : at + 4], "big")


def _request(message: bytes) -> Request:
    kind, version, _, named = struct.unpack_from(">hhih", message, 4)
    return Request(kind, version, message[14 : 14 + max(named, 0)].decode(), message)
