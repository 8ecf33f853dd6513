"""Who may see the dashboard: the rules of ``cdc serve``, for the ports of all daemons."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cdc.base.web.hosts import Hosts
from cdc.base.web.problem import Headers, Problem
from cdc.base.web.tokens import Access, Tokens


class Door:
    """Checks each request for data. The page itself is public: it holds no data, and browsers send no token for it.

    Args:
        host: the address that the daemon listens on.
        tokens_file: the file of bearer tokens; None if no token is needed, which is allowed on loopback only.
        option: the name of this file's option in the configuration.

    Raises:
        ConfigError: the file cannot be read, or is invalid.
    """

    def __init__(self, host: str, tokens_file: str | None, option: str) -> None:
        self._tokens: Final = Tokens(None if tokens_file is None else Path(tokens_file), option)
        self._hosts: Final = Hosts(host)
        self._is_shut: Final = tokens_file is None and not _is_loopback(host)
        self._option = option

    def access(self, headers: Headers) -> Access:
        """Returns what the caller may see; the dashboard needs the right to ``/metrics``.

        Raises:
            Problem: ``no-token``, ``not-allowed`` or ``foreign-host``.
        """
        if self._is_shut:
            raise Problem(
                "not-allowed",
                f"The dashboard is off, because it shows rows and other machines can reach this port without a token. "
                f"Set {self._option}, or listen on 127.0.0.1.",
            )
        if not self._tokens.needed:  # a page on the web could ask through DNS rebinding, but it has no token
            self._hosts.check(headers)
        self._tokens.refresh()
        access = self._tokens.access(headers)
        if not access.metrics:
            raise Problem("not-allowed", f"The token {access.name} may not see the dashboard: set metrics: true.")
        return access

    def still_open(self, headers: Headers) -> Callable[[], bool]:
        """Returns a check whether the same caller may still look: a stream lasts hours, and tokens can be revoked."""

        def ask() -> bool:
            try:
                self.access(headers)
            except Problem:
                return False
            return True

        return ask


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
