"""Server-sent events about a table, as bytes. Pure.

https://html.spec.whatwg.org/multipage/server-sent-events.html

``row`` and ``delete`` name a key, and so does ``unreadable``: its newest record is not a row, and a GET answers 502.
``snapshot`` says that every row was sent. ``reset`` says that all rows sent so far are void, because every row follows
again. ``heartbeat`` says that nothing changed. ``end`` says why the service hangs up.

An event has an ``id`` where it is safe to go on: at the end of the snapshot, and after everything that one read of the
journal found. A browser sends the ``id`` back as ``Last-Event-ID``.
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
    """Writes one event. Data of several lines becomes several ``data:`` lines.

    Args:
        name: the event's name.
        data: JSON text, or a dictionary to write as JSON.
        token: the event's ``id``, if it is safe to go on after it.
    """
    raw = data if isinstance(data, bytes) else orjson.dumps(data)
    lines = raw.splitlines() if b"\n" in raw or b"\r" in raw else [raw]
    body = b"event: %b\n%b\n\n" % (name.encode(), b"\n".join(b"data: " + line for line in lines or [b""]))
    return b"id: %b\n%b" % (token.encode(), body) if token else body


def every_row(rows: Iterable[StoredRow]) -> bytes:
    """Writes the rows of a snapshot."""
    return b"".join(event("row", item(row)) for row in rows)


def changed_rows(changed: Sequence[ChangedRow], token: str) -> bytes:
    """Writes what one read of the journal found; the last event has the token. Empty if it found nothing."""
    return b"".join(_change(each, token if each is changed[-1] else "") for each in changed)


def heartbeat(facts: Facts, table: str, token: str) -> bytes:
    """Writes that nothing changed, and what answers about the table are worth now."""
    if (known := facts.tables.get(table)) is None:
        return event("heartbeat", {"state": "gone", "lsn": None}, token)
    evidence = evidence_of(facts, known)
    said: dict[str, Any] = {"state": evidence.state, "lsn": str(evidence.lsn) if evidence.lsn else None}
    if (age_s := evidence.age_s) is not None:
        said["age_s"] = round(age_s, 3)
    return event("heartbeat", said, token)


def farewell(error: BaseException | None) -> bytes:
    """Writes why the service hangs up: it stops, or cannot go on."""
    match error:
        case None:
            reason = "the service stops"
        case CdcError():
            reason = error.message
        case Problem():
            reason = error.detail
        case _:
            reason = "internal error"
    return event("end", {"reason": reason})


def _change(changed: ChangedRow, token: str) -> bytes:
    if (record := changed.unreadable) is not None:
        place = b'"partition":%d,"offset":%d' % (record.partition, record.offset)
        said = b'{"key":%b,%b,"reason":%b}' % (changed.key, place, orjson.dumps(record.reason))
        return event("unreadable", said, token)
    if changed.row is None:
        return event("delete", b'{"key":%b}' % changed.key, token)
    return event("row", item(changed.row), token)
