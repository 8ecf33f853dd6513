"""Answers without rows: a status, a sentence and what to do, as ``application/problem+json``. Pure.

https://www.rfc-editor.org/rfc/rfc9457
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import orjson

Header: TypeAlias = tuple[bytes, bytes]
Headers: TypeAlias = list[Header]

Kind: TypeAlias = Literal[
    "ambiguous",
    "bad-parameter",
    "bad-body",
    "malformed-key",
    "wrong-key-columns",
    "foreign-cursor",
    "no-token",
    "not-allowed",
    "no-page",
    "unknown-table",
    "no-row",
    "wrong-method",
    "foreign-host",
    "other-source",
    "not-yet",
    "body-too-large",
    "url-too-long",
    "no-history",
    "too-many-watches",
    "our-bug",
    "unreadable",
    "not-ready",
    "store-away",
    "too-slow",
]

KINDS: Final[Mapping[Kind, tuple[int, str]]] = {
    "ambiguous": (300, "The path has two meanings"),
    "bad-parameter": (400, "A parameter is wrong"),
    "bad-body": (400, "The body is wrong"),
    "malformed-key": (400, "The key cannot be read"),
    "wrong-key-columns": (400, "The key has other columns"),
    "foreign-cursor": (400, "The cursor is not of this list"),
    "no-token": (401, "A token is needed"),
    "not-allowed": (403, "The token does not allow it"),
    "no-page": (404, "There is no such page"),
    "unknown-table": (404, "There is no such table"),
    "no-row": (404, "There is no such row"),
    "wrong-method": (405, "The page takes another method"),
    "other-source": (409, "The view follows another server"),
    "not-yet": (412, "The view does not show that commit yet"),
    "body-too-large": (413, "The body is too large"),
    "url-too-long": (414, "The URL is too long"),
    "foreign-host": (421, "The service has no such name"),
    "no-history": (422, "The past of the row is not known"),
    "too-many-watches": (429, "Too many watches are open"),
    "our-bug": (500, "The service made a mistake"),
    "unreadable": (502, "The topic holds no valid row"),
    "not-ready": (503, "The first load is not done"),
    "store-away": (503, "The store does not answer"),
    "too-slow": (504, "The answer took too long"),
}
"""Status and title of each kind. docs/views.md says what to do about each."""

PROBLEM_JSON: Final = b"application/problem+json"


def sentences(*parts: str) -> str:
    """Joins messages and remedies, which begin in lower case and have no full stop, to sentences."""
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)


class Problem(Exception):
    """An answer without rows.

    Args:
        kind: ``type`` in the answer; programs decide by it.
        detail: names the object and says what to do, in sentences.
        headers: further headers, in addition to those about the content.
        more: further members of the answer, in addition to the standard ones; JSON values.
    """

    def __init__(self, kind: Kind, detail: str, headers: Sequence[Header] = (), **more: object) -> None:
        super().__init__(detail)
        self.kind: Final = kind
        self.detail: Final = detail
        self.status, self.title = KINDS[kind]
        self.headers: Final = headers
        self.more: Final = more

    def body(self) -> bytes:
        """Returns the answer's JSON."""
        said = {"type": self.kind, "title": self.title, "status": self.status, "detail": self.detail, **self.more}
        return orjson.dumps(said) + b"\n"

    def all_headers(self, length: int) -> Headers:
        """Returns all headers, with those about the content of this length."""
        return [
            (b"content-type", PROBLEM_JSON),
            (b"content-length", b"%d" % length),
            (b"cache-control", b"no-store"),
            *self.headers,
        ]
