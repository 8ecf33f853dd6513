"""The headers in which every answer says what it is worth: LSN, place, age, state. Pure.

The headers of a row and of a page are the same, so that a program reads them in one place.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from cdc.base.web.problem import Header, Headers
from cdc.views.table.answers import Evidence
from cdc.views.table.facts import timeline_of
from cdc.views.table.rows import StoredRow

_NOT_IN_HEADERS: Final = re.compile(r"[^ -~]+")


def evidence_headers(evidence: Evidence, now: float) -> Headers:
    """The headers of any answer about a table.

    Args:
        evidence: from the moment at which the store was read.
        now: seconds since 1970.
    """
    headers = [*_between_commits(evidence)]
    if evidence.caught_up_at:
        headers.append((b"cdc-age", b"%.3f" % max(now - evidence.caught_up_at, 0)))
    return headers


@lru_cache(maxsize=256)
def _between_commits(evidence: Evidence) -> tuple[Header, ...]:
    """The headers that all answers about a table share until the next commit."""
    headers = [(b"cdc-state", evidence.state.encode()), (b"cdc-generation", b"%d" % evidence.generation)]
    if evidence.lsn:
        headers += [(b"cdc-lsn", str(evidence.lsn).encode()), (b"cdc-source", evidence.source.encode())]
        if timeline := timeline_of(evidence.source):
            headers.append((b"cdc-min-lsn", f"{timeline}:{evidence.lsn}".encode()))
    if evidence.reason:
        headers.append((b"cdc-reason", in_header(evidence.reason)))
    return tuple(headers)


def row_headers(row: StoredRow, evidence: Evidence, now: float) -> Headers:
    """The headers of one row: the evidence, where its record lies, and the tag of this version of the row."""
    headers = evidence_headers(evidence, now)
    headers += [
        (b"cdc-partition", b"%d" % row.partition),
        (b"cdc-offset", b"%d" % row.offset),
        (b"etag", etag(row, evidence)),
    ]
    if row.lsn is not None:
        headers.append((b"cdc-row-lsn", str(row.lsn).encode()))
    return headers


def etag(row: StoredRow, evidence: Evidence) -> bytes:
    """The tag of one version of a row. No two versions share one: a generation uses each record's place only once."""
    generation = b"%b-%d-%d" % (evidence.store_id[:8].encode(), evidence.number, evidence.generation)
    return b'"%b-%d-%d"' % (generation, row.partition, row.offset)


def is_known(etags: bytes, current: bytes) -> bool:
    """Whether ``If-None-Match`` names the current tag. https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match"""
    if etags == current or etags.strip() == b"*":
        return True
    return current in (each.strip().removeprefix(b"W/") for each in etags.split(b","))


def in_header(text: str) -> bytes:
    """Makes a sentence fit for a header: printable ASCII, on one line, at most 500 characters."""
    return _NOT_IN_HEADERS.sub("?", text)[:500].encode()
