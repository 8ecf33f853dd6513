"""An answer in plain values, and the JSON around rows, which keep their stored bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import orjson

from cdc.base.web.problem import Header, Headers
from cdc.views.table.answers import Found
from cdc.views.table.facts import TableFacts
from cdc.views.table.rows import StoredRow

JSON: Final = b"application/json"


class Answer(NamedTuple):
    """A response to send. ``headers`` lack the type and the length of the content.

    Attributes:
        written: further headers, as they are sent: those of rows, which most answers are, are written in one piece.
    """

    status: int
    headers: Headers
    body: bytes
    content_type: bytes = JSON
    written: bytes = b""

    def all_headers(self) -> Headers:
        """The headers, with type and length of the content. A 304 has no content."""
        content = (b"content-type", self.content_type), (b"content-length", b"%d" % len(self.body))
        lines = [line.partition(b": ") for line in self.written.split(b"\r\n")[:-1]]
        written = [(name, value) for name, _, value in lines]
        return [*(() if self.status == 304 else content), *self.headers, *written]

    def lines(self) -> bytes:
        """The same headers, as they are sent."""
        content = b"content-type: %b\r\ncontent-length: %d\r\n" % (self.content_type, len(self.body))
        further = header_lines(self.headers) if self.headers else b""
        return b"%b%b%b" % (b"" if self.status == 304 else content, further, self.written)


def header_lines(headers: Iterable[Header]) -> bytes:
    """Writes headers as they are sent.

    Raises:
        ValueError: a header has a line break.
    """
    lines = [b"%b: %b\r\n" % each for each in headers]
    written = b"".join(lines)
    if written.count(b"\n") != len(lines) or written.count(b"\r") != len(lines):
        raise ValueError("a header contains a line break, so a part of its value would pass for another header")
    return written


def as_json(value: Any, headers: Headers | None = None, status: int = 200) -> Answer:
    """Makes an answer that contains no rows."""
    return Answer(status, [(b"cache-control", b"no-store"), *(headers or [])], orjson.dumps(value) + b"\n")


def item(row: StoredRow) -> bytes:
    """Writes a row of a list: its key, the place of its record, and its own bytes."""
    lsn = b"null" if row.lsn is None else b'"%b"' % str(row.lsn).encode()
    return b'{"key":%b,"partition":%d,"offset":%d,"lsn":%b,"row":%b}' % (
        row.key,
        row.partition,
        row.offset,
        lsn,
        row.row,
    )


def found_item(table: TableFacts, found: Found) -> bytes:
    """Writes a row of a batch: null if there is none, an error with the record's place if it cannot be read."""
    if found.unreadable is not None:
        return orjson.dumps({"error": unreadable(table, found)})
    return b"null" if found.row is None else item(found.row)


def unreadable(table: TableFacts, found: Found) -> dict[str, object]:
    """The error for a record that is not a row."""
    record = found.unreadable
    assert record is not None
    return {"topic": table.topic, "partition": record.partition, "offset": record.offset, "reason": record.reason}


def listed(items: Iterable[bytes]) -> bytes:
    """Makes a JSON array of items that are JSON already."""
    return b"[" + b",".join(items) + b"]"
