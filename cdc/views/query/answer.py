"""An answer in plain values, and the JSON around rows, which stay the bytes that are stored. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import orjson

from cdc.base.web.problem import Headers
from cdc.views.table.answers import Found
from cdc.views.table.facts import TableFacts
from cdc.views.table.rows import StoredRow

JSON: Final = b"application/json"


class Answer(NamedTuple):
    """What is sent. ``headers`` say nothing of the content's type and length yet."""

    status: int
    headers: Headers
    body: bytes
    content_type: bytes = JSON

    def all_headers(self) -> Headers:
        """With the content's. A 304 has none."""
        if self.status == 304:
            return self.headers
        return [
            (b"content-type", self.content_type),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]


def as_json(value: Any, headers: Headers | None = None, status: int = 200) -> Answer:
    """An answer that holds no rows."""
    return Answer(status, [(b"cache-control", b"no-store"), *(headers or [])], orjson.dumps(value) + b"\n")


def item(row: StoredRow) -> bytes:
    """A row among others: its key, its place and its own bytes."""
    lsn = b"null" if row.lsn is None else b'"%b"' % str(row.lsn).encode()
    return b'{"key":%b,"partition":%d,"offset":%d,"lsn":%b,"row":%b}' % (
        row.key,
        row.partition,
        row.offset,
        lsn,
        row.row,
    )


def found_item(table: TableFacts, found: Found) -> bytes:
    """A row of a batch: null when there is none, an error with the record's place when it cannot be read."""
    if found.unreadable is not None:
        return orjson.dumps({"error": unreadable(table, found)})
    return b"null" if found.row is None else item(found.row)


def unreadable(table: TableFacts, found: Found) -> dict[str, object]:
    """What is said of a record that is no row."""
    record = found.unreadable
    assert record is not None
    return {"topic": table.topic, "partition": record.partition, "offset": record.offset, "reason": record.reason}


def listed(items: Iterable[bytes]) -> bytes:
    """A JSON array of what is JSON already."""
    return b"[" + b",".join(items) + b"]"
