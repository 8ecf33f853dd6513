"""Reads the body of a request, up to a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdc.base.web.problem import Problem

MAX_BODY: Final = 1024 * 1024
"""The largest body, in bytes: a thousand keys of a kilobyte."""

_CLOSE: Final = [(b"connection", b"close")]
"""Sent with the refusal of a body: the rest of it is not read, so the connection cannot be used again."""


async def read_body(scope: Mapping[str, Any], receive: Any, limit: int) -> bytes:
    """Read the whole body.

    Raises:
        Problem: ``body-too-large``; no more than the limit is kept in memory.
    """
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if len(said) > 18 or int(said) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem("bad-body", "The connection ended before the body did.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem("body-too-large", f"A body may have up to {limit} bytes. Send the keys in several batches.", _CLOSE)
