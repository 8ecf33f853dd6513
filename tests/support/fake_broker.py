"""A broker of one topic with one partition, for what a real one does at the wrong moment only: it answers when told to.

https://kafka.apache.org/protocol
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import closing, suppress
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"
TOPIC: Final = "t"
_PRODUCE, _METADATA, _FIND_COORDINATOR, _API_VERSIONS, _INIT_PRODUCER_ID = 0, 3, 10, 18, 22
_ADD_PARTITIONS, _END_TXN = 24, 26
_APIS: Final = {_PRODUCE: 3, 1: 4, 2: 1, _METADATA: 1, 8: 1, 9: 1, 11: 0, 12: 0, 13: 0, 14: 0} | {
    _API_VERSIONS: 0,
    _INIT_PRODUCER_ID: 0,
    _ADD_PARTITIONS: 0,
    _END_TXN: 0,
    _FIND_COORDINATOR: 1,
    36: 0,
}
"""Up to which version it knows what; the client needs those it never asks, too, to trust it with idempotent rows."""
_BATCH_PRODUCER_AT: Final = 43
UNSUPPORTED_VERSION: Final = 35


class Produced(NamedTuple):
    """A request to write rows: who, and from which number of that producer's on."""

    connection: socket.socket
    correlation: int
    producer: int
    epoch: int
    sequence: int
    rows: int


class FakeBroker:
    """Listens from the beginning.

    Attributes:
        produced: what came, in order.
        takes_all: what comes is answered at once, as taken.
        port: where it listens.
    """

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, 0))
        self.port = int(self._listening.getsockname()[1])
        self.produced: list[Produced] = []
        self.takes_all = False
        self._producers = 77
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def options(self) -> dict[str, str]:
        """What a client needs to know."""
        return {"bootstrap.servers": f"{HOST}:{self.port}"}

    def close(self) -> None:
        """Go away, in the middle of whatever it is."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def answer(self, produced: Produced, error: int) -> None:
        """Say that it was taken (0), or what is wrong."""
        partition = struct.pack(">iihqq", 1, 0, error, 0, -1)
        self._send(
            produced.connection,
            produced.correlation,
            struct.pack(">i", 1) + _string(TOPIC) + partition + struct.pack(">i", 0),
        )

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listening.accept()[0]
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), closing(connection), connection.makefile("rb") as stream:
            while len(head := stream.read(12)) == 12:
                size, kind, version, correlation = struct.unpack(">ihhi", head)
                body = stream.read(size - 8)
                if kind == _PRODUCE:
                    self.produced.append(Produced(connection, correlation, *_batch(body)))
                    if self.takes_all:
                        self.answer(self.produced[-1], 0)
                elif kind == _METADATA:
                    self._send(connection, correlation, self._metadata())
                elif kind == _API_VERSIONS:
                    self._send(connection, correlation, _api_versions(version))
                elif kind == _INIT_PRODUCER_ID:
                    self._send(connection, correlation, struct.pack(">ihqh", 0, 0, self._producers, 0))
                    self._producers += 1
                elif kind == _FIND_COORDINATOR:
                    self._send(connection, correlation, self._coordinator())
                elif kind == _ADD_PARTITIONS:
                    added = struct.pack(">ii", 0, 1) + _string(TOPIC) + struct.pack(">iih", 1, 0, 0)
                    self._send(connection, correlation, added)
                elif kind == _END_TXN:
                    self._send(connection, correlation, struct.pack(">ih", 0, 0))

    def _coordinator(self) -> bytes:
        return struct.pack(">ihhi", 0, 0, -1, 1) + _string(HOST) + struct.pack(">i", self.port)

    def _metadata(self) -> bytes:
        brokers = struct.pack(">ii", 1, 1) + _string(HOST) + struct.pack(">ihi", self.port, -1, 1)
        partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        return brokers + struct.pack(">ih", 1, 0) + _string(TOPIC) + struct.pack(">?i", False, 1) + partition

    @staticmethod
    def _send(connection: socket.socket, correlation: int, body: bytes) -> None:
        connection.sendall(struct.pack(">ii", 4 + len(body), correlation) + body)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _api_versions(asked: int) -> bytes:
    if asked:
        return struct.pack(">hihhh", UNSUPPORTED_VERSION, 1, _API_VERSIONS, 0, 0)
    known = b"".join(struct.pack(">hhh", kind, 0, newest) for kind, newest in _APIS.items())
    return struct.pack(">hi", 0, len(_APIS)) + known


def _batch(body: bytes) -> tuple[int, int, int, int]:
    """Of a request with one batch: its producer, epoch, first sequence number, and how many rows there are."""
    at = 0
    for _ in ("client id", "transactional id"):
        at += 2 + max(struct.unpack_from(">h", body, at)[0], 0)
    at += 2 + 4 + 4  # acks, timeout, one topic
    at += 2 + int(struct.unpack_from(">h", body, at)[0])
    at += 4 + 4 + 4  # one partition, its number, the size
    return struct.unpack_from(">qhii", body, at + _BATCH_PRODUCER_AT)
