"""The least that an ASGI server can be asked to answer."""

from __future__ import annotations

from typing import Any


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer 200 and two words."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello, world"})
