"""Server-sent events about a table, as bytes. Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html

``row`` and ``delete`` bring a key, and so does ``unreadable``, where the newest record of the key is no row and a GET
says 502; ``snapshot`` says that every row was sent; ``reset`` that what was sent counts no more, because the rows come
anew; ``heartbeat`` that nothing changed; ``end`` why the service hangs up. ``id`` stands
where it is safe to go on: behind the whole snapshot, and behind all that one look at the journal found. A browser sends
it back as ``Last-Event-ID``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from cdc.base.errors import CdcError
from cdc.base.web.problem import Problem
from cdc.views.query.answer import item
from cdc.views.table.answers import ChangedRow, evidence_of
from cdc.views.table.facts import Facts
from cdc.views.table.rows import StoredRow


def event(name: str, data: bytes | dict[str, Any], token: str = "") -> bytes:
    """One event; data of several lines is several lines of data.

    Args:
        name: of the event.
        data: JSON text, or what is written as JSON.
        token: its ``id``, if it is safe to go on behind it.
    """
    raw = data if isinstance(data, bytes) else orjson.dumps(data)
    lines = raw.splitlines() if b"\n" in raw or b"\r" in raw else [raw]
    body = b"event: %b\n%b\n\n" % (name.encode(), b"\n".join(b"data: " + line for line in lines or [b""]))
    return b"id: %b\n%b" % (token.encode(), body) if token else body


def every_row(rows: Iterable[StoredRow]) -> bytes:
    """Of a snapshot."""
    return b"".join(event("row", item(row)) for row in rows)


def changed_rows(changed: Sequence[ChangedRow], token: str) -> bytes:
    """What one look at the journal found; the last event has the token. Nothing when nothing was found."""
    return b"".join(_change(each, token if each is changed[-1] else "") for each in changed)


def heartbeat(facts: Facts, table: str, token: str) -> bytes:
    """Nothing changed: what the table is worth now."""
    if (known := facts.tables.get(table)) is None:
        return event("heartbeat", {"state": "gone", "lsn": None}, token)
    evidence = evidence_of(facts, known)
    said: dict[str, Any] = {"state": evidence.state, "lsn": str(evidence.lsn) if evidence.lsn else None}
    if (age_s := evidence.age_s) is not None:
        said["age_s"] = round(age_s, 3)
    return event("heartbeat", said, token)


def farewell(error: BaseException | None) -> bytes:
    """Why the service hangs up: it stops, or cannot go on."""
    match error:
        case None:
            reason = "the service stops"
        case CdcError():
            reason = error.message
        case Problem():
            reason = error.detail
        case _:
            reason = "our bug"
    return event("end", {"reason": reason})


def _change(changed: ChangedRow, token: str) -> bytes:
    if (record := changed.unreadable) is not None:
        place = b'"partition":%d,"offset":%d' % (record.partition, record.offset)
        said = b'{"key":%b,%b,"reason":%b}' % (changed.key, place, orjson.dumps(record.reason))
        return event("unreadable", said, token)
    if changed.row is None:
        return event("delete", b'{"key":%b}' % changed.key, token)
    return event("row", item(changed.row), token)
