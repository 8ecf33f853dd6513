"""The files of the page, and the headers under which a browser runs nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from cdc.base.daemon.pages import Reply

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""No inline script, no inline style, nothing from elsewhere, and no string that becomes HTML."""

SECURITY: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class Assets:
    """Read once; a few files of some 60 KB together."""

    def __init__(self) -> None:
        folder = files("cdc.ops.dashboard") / "static"
        self._found: dict[str, tuple[str, bytes, str]] = {}
        for each in folder.iterdir():
            kind = _TYPES.get(each.name.rpartition(".")[2])
            if kind is not None:
                content = each.read_bytes()
                self._found[each.name] = kind, content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    def reply(self, name: str, known: bytes = b"") -> Reply | None:
        """A file; None without one of that name.

        Args:
            name: of the file.
            known: the header If-None-Match.
        """
        if name not in self._found:
            return None
        kind, content, tag = self._found[name]
        headers = [*SECURITY, ("Cache-Control", "no-cache"), ("ETag", tag)]
        if known == tag.encode():
            return Reply(304, headers, b"")
        return Reply(200, [("Content-Type", kind), *headers], content)
