"""The interface of pages that a caller adds to a daemon's own: requests and replies as plain values."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry


class Request(NamedTuple):
    """A GET or HEAD request.

    Attributes:
        path: without the query, still percent-encoded.
        query: the part after the question mark.
        headers: names in lower case, and values.
    """

    path: str
    query: str
    headers: list[tuple[bytes, bytes]]


class Reply(NamedTuple):
    """An answer.

    Attributes:
        status: the HTTP status.
        headers: all headers except the length.
        body: the whole body, or a generator of pieces that are sent as they come; it is closed when the client leaves.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes | Generator[bytes, None, None]


Pages: TypeAlias = Callable[[Request], Reply | None]
"""Answers a request, called from any thread; returns None if it is not for one of these pages."""

OpenPages: TypeAlias = Callable[[CollectorRegistry], AbstractContextManager[Pages]]
"""Makes the pages of a daemon whose metrics are in this registry; they answer while the ``with`` block lasts."""
