"""Pages that a daemon shows beside its own: a request in plain values, and what is answered."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry


class Request(NamedTuple):
    """A GET or HEAD.

    Attributes:
        path: without the query, still percent-encoded.
        query: what stands behind the question mark.
        headers: names in lower case.
    """

    path: str
    query: str
    headers: list[tuple[bytes, bytes]]


class Reply(NamedTuple):
    """An answer.

    Attributes:
        status: of HTTP.
        headers: all but the length.
        body: the whole of it, or pieces that are sent as they come; the generator is closed when nobody reads on.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes | Generator[bytes, None, None]


Pages: TypeAlias = Callable[[Request], Reply | None]
"""Answers from any thread; None for what is no page of theirs."""

OpenPages: TypeAlias = Callable[[CollectorRegistry], AbstractContextManager[Pages]]
"""Makes the pages of a daemon that counts in this registry; they answer while the ``with`` block lasts."""
