"""Checks the host name by which a client addresses a service without tokens. Pure.

A web page can make its own name resolve to 127.0.0.1 (DNS rebinding). The browser then treats this service as a part of
that page, and lets the page read every answer. But the page cannot hide its name, which is in the header Host.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from cdc.base.web.problem import Headers, Problem

_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
_LOCAL: Final = "localhost"
_REMEMBERED: Final = 256
"""How many accepted names are remembered as they were written, because a client sends the same one in each request."""
_LONGEST: Final = 260
"""The most bytes of a name that is remembered: a DNS name has at most 255, and a port follows it."""


class Hosts:
    """The host names of a service.

    Args:
        listening: the host that it listens on. If that is every address (0.0.0.0, ::), any address is its name.
    """

    def __init__(self, listening: str) -> None:
        self._listening: Final = listening.lower()
        address = _address(listening)
        self._is_everywhere: Final = address is not None and address.is_unspecified
        self._ours: Final[set[bytes]] = set()

    def check(self, headers: Headers) -> None:
        """Refuse a request for another name. A request without a name is allowed: it cannot come from a browser.

        Raises:
            Problem: ``foreign-host``.
        """
        for name, value in headers:
            if name == b"host" and value not in self._ours:
                self._check(value)

    def _check(self, value: bytes) -> None:
        if not self._is_ours(value.decode("latin-1").strip().lower()):
            raise Problem(
                "foreign-host",
                "Without serve.tokens_file the service answers only to localhost, to loopback addresses and to "
                f"serve.host ({self._listening}). Ask by one of them, or set serve.tokens_file.",
            )
        if len(self._ours) < _REMEMBERED and len(value) <= _LONGEST:
            self._ours.add(value)

    def _is_ours(self, host: str) -> bool:
        if (found := _HOST.fullmatch(host)) is None:
            return False
        asked = found[1].strip("[]").removesuffix(".")
        if asked == self._listening or asked == _LOCAL or asked.endswith(f".{_LOCAL}"):
            return True
        address = _address(asked)
        return address is not None and (address.is_loopback or self._is_everywhere)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
