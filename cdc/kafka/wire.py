"""Asks a broker of our choice for what Kafka's client library does not tell, such as batches as they lie on disk.

It speaks Kafka's protocol in versions that every broker since 2.1 understands: Fetch 10, DescribeLogDirs 1, and the
SASL handshake.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from cdc.base.errors import DecodeError, TopicRefused, TopicUnavailable
from cdc.base.long_wait import told
from cdc.kafka.acls import Acl
from cdc.kafka.door import authenticate, open_socket

_FETCH: Final = 1
_DESCRIBE_LOG_DIRS: Final = 35
_TIMEOUT_S: Final = 30.0
_FETCH_BYTES: Final = 4 * 1024 * 1024
_MAX_FRAME: Final = 256 * 1024 * 1024
"""The largest accepted answer. A batch may be larger than the limit of a fetch, but no broker accepts one of this size;
a greater length means that the other end does not speak Kafka's protocol."""
_NOT_AUTHORISED: Final = {29, 31}
"""Kafka's error codes TOPIC_AUTHORIZATION_FAILED and CLUSTER_AUTHORIZATION_FAILED."""


class BrokerWire:
    """A connection to one broker.

    Args:
        host: the host that the broker advertises.
        port: the port that the broker advertises.
        options: librdkafka settings; only those for TLS and SASL are used.
        timeout_s: how long to wait for the connection, and then for each part of an answer.

    Raises:
        TopicUnavailable: the broker does not answer.
        TopicRefused: the broker refuses us, or the options ask for a SASL mechanism that only the client library has.
    """

    def __init__(self, host: str, port: int, options: Mapping[str, Any], *, timeout_s: float = _TIMEOUT_S) -> None:
        self._where = f"{host}:{port}"
        self._options = options
        self._sent = 0
        try:
            with told(f"the broker at {self._where}", "to let us connect", f"up to {timeout_s:g} s"):
                self._socket: socket.socket = open_socket(host, port, options, timeout_s=timeout_s)
        except OSError as error:
            raise self._gone(error) from error
        try:
            authenticate(self.ask, options)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """Returns the socket's number, to wait for an answer beside others."""
        return self._socket.fileno()

    def fetch(self, topic: str, partition: int, offset: int, *, limit: int = _FETCH_BYTES) -> memoryview:
        """Fetches batches, beginning with the one that holds this offset. Open and aborted transactions are included.

        Args:
            topic, partition: a partition that this broker leads.
            offset: if it is gone, the next offset that exists counts.
            limit: bytes to fetch; the first batch comes whole, however large it is.

        Raises:
            TopicUnavailable: the broker went away, or does not lead the partition any more.
            TopicRefused: we may not read the topic.
        """
        body = struct.pack(">iiiibii", -1, 100, 1, limit, 0, 0, -1)
        body += struct.pack(">i", 1) + text(topic)
        body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, limit) + struct.pack(">i", 0)
        answer = AnswerReader(self.ask(_FETCH, 10, body))
        _, error, _, topics = answer.take(">ihii")
        self._check(error, topic)
        if topics != 1:
            raise DecodeError(f"broker {self._where} answered a fetch of {topic!r} with {topics} topics")
        answer.text()
        _, _, error, _, _, _, aborted = answer.take(">iihqqqi")
        self._check(error, topic)
        answer.skip(16 * max(aborted, 0))
        return answer.block()

    def log_sizes(self, topics: Mapping[str, Iterable[int]]) -> dict[tuple[str, int], int]:
        """Returns bytes on this broker's disks by partition. Partitions that it does not hold are left out.

        Raises:
            TopicUnavailable: the broker went away.
            TopicRefused: we may not ask, because that needs Describe on the cluster.
        """
        body = struct.pack(">i", len(topics))
        for topic, partitions in topics.items():
            numbers = list(partitions)
            body += text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        answer = AnswerReader(self.ask(_DESCRIBE_LOG_DIRS, 1, body))
        _, directories = answer.take(">ii")
        found: dict[tuple[str, int], int] = {}
        for _ in range(directories):
            (error,) = answer.take(">h")
            self._check(error, None)
            answer.text()
            (count,) = answer.take(">i")
            for _ in range(count):
                name = answer.text()
                (partitions_count,) = answer.take(">i")
                for _ in range(partitions_count):
                    number, size, _, is_future = answer.take(">iqq?")
                    if not is_future:
                        found[name, number] = size
        return found

    def ask(self, api: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        """Sends a request and returns the bytes that follow the header of its answer.

        Args:
            api, version: their numbers on Kafka's protocol page.
            body: the request's fields.
            flexible: this version has tagged fields; the headers have none of them.

        Raises:
            TopicUnavailable: the broker went away.
        """
        self.send(api, version, body, flexible=flexible)
        answer = self.answer()
        return answer[1:] if flexible else answer  # the end of the header: a byte that says "no tags"

    def send(self, api: int, version: int, body: bytes, *, flexible: bool = False) -> None:
        """Sends a request, whose answer comes from ``answer``; arguments and errors as for ``ask``."""
        self._sent += 1
        tags = b"\0" if flexible else b""
        frame = struct.pack(">hhi", api, version, self._sent) + text("cdc") + tags + body
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError as error:
            raise self._gone(error) from error

    def answer(self) -> bytes:
        """Returns what follows the correlation id in the next answer.

        Raises:
            TopicUnavailable: the broker went away.
        """
        try:
            (size,) = struct.unpack(">i", self._receive(4))
            if not 4 <= size <= _MAX_FRAME:
                raise TopicUnavailable(
                    f"broker {self._where} answered with a frame of {size} bytes, which is not Kafka's protocol",
                    remedy="does security.protocol match the broker's listener?",
                )
            return self._receive(size)[4:]
        except OSError as error:
            raise self._gone(error) from error

    def _gone(self, error: OSError) -> TopicUnavailable:
        return TopicUnavailable(
            f"broker {self._where}: {error}",
            remedy="is the broker up, and can this machine reach it under the name that it advertises?",
        )

    def _receive(self, size: int) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise TopicUnavailable(
                    f"broker {self._where} closed the connection",
                    remedy="does security.protocol match the broker's listener?",
                )
            filled += count
        return bytes(data)

    def _check(self, error: int, topic: str | None) -> None:
        if error in _NOT_AUTHORISED:
            if topic is None:
                raise TopicRefused(
                    "not authorised to read the sizes of partitions", remedy="allow Describe on the cluster"
                )
            raise TopicRefused(
                f"not authorised to read topic {topic!r}", remedy=Acl("topic", topic, ("Read",)).remedy(self._options)
            )
        if error:
            about = "" if topic is None else f" for topic {topic!r}"
            raise TopicUnavailable(f"broker {self._where} answered with error {error}{about}", remedy="try again")


class AnswerReader:
    """Reads an answer field by field, and does not trust its lengths."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._place = 0

    def take(self, shape: str) -> tuple[Any, ...]:
        """Reads numbers; ``shape`` is a format of ``struct``."""
        try:
            found = struct.unpack_from(shape, self._data, self._place)
        except struct.error as error:
            raise DecodeError("a broker's answer is shorter than the protocol says") from error
        self._place += struct.calcsize(shape)
        return found

    def text(self) -> str:
        """Reads a string; null becomes an empty one."""
        (size,) = self.take(">h")
        return self._decoded(size)

    def compact_text(self) -> str:
        """Reads a string of a flexible version; null becomes an empty one."""
        return self._decoded(self.varint() - 1)

    def compact_count(self) -> int:
        """Reads the number of elements of an array of a flexible version."""
        return max(self.varint() - 1, 0)

    def skip_tags(self) -> None:
        """Skips the tagged fields at the end of a structure of a flexible version."""
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())

    def varint(self) -> int:
        """Reads an unsigned number with seven bits in each byte."""
        value = shift = 0
        while True:
            byte: int = self.take(">B")[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7

    def block(self) -> memoryview:
        """Reads bytes; null becomes empty bytes."""
        (size,) = self.take(">i")
        return self._part(max(size, 0))

    def skip(self, size: int) -> None:
        """Skips bytes of fields that nobody needs."""
        self._part(size)

    def _decoded(self, size: int) -> str:
        try:
            return bytes(self._part(max(size, 0))).decode()
        except UnicodeDecodeError as error:
            raise DecodeError("a broker's answer has a text that is not UTF-8") from error

    def _part(self, size: int) -> memoryview:
        part = self._data[self._place : self._place + size]
        if len(part) < size:
            raise DecodeError("a broker's answer is shorter than the protocol says")
        self._place += size
        return part


def compact_text(value: str) -> bytes:
    """Returns a string as flexible versions write it."""
    encoded = value.encode()
    size, head = len(encoded) + 1, bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + encoded


def text(value: str) -> bytes:
    """Returns a string as the protocol writes it."""
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded
