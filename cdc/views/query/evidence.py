"""The headers in which every answer says what it is worth: LSN, place, age, state. Pure.

The headers of a row and of a page are the same, so that a program reads them in one place.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from cdc.base.web.problem import Header, Headers
from cdc.views.query.answer import header_lines
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


def row_headers(row: StoredRow, evidence: Evidence, now: float) -> tuple[bytes, bytes]:
    """The headers of one row: the evidence, where its record lies, and the tag of this version of the row. No two
    versions share a tag: a generation uses each record's place only once.

    Clients may keep a row, but must ask with its tag whether it is still current.

    Returns:
        The tag, and all headers as they are sent.
    """
    lines, generation = _written_between_commits(evidence)
    partition, offset = row.partition, row.offset
    tag = b'"%b-%d-%d"' % (generation, partition, offset)
    age = b"cdc-age: %.3f\r\n" % max(now - evidence.caught_up_at, 0) if evidence.caught_up_at else b""
    lsn = b"" if row.lsn is None else b"cdc-row-lsn: %b\r\n" % str(row.lsn).encode()
    parts = (lines, age, partition, offset, tag, lsn)
    return tag, b"%b%bcdc-partition: %d\r\ncdc-offset: %d\r\netag: %b\r\n%bcache-control: no-cache\r\n" % parts


@lru_cache(maxsize=256)
def _written_between_commits(evidence: Evidence) -> tuple[bytes, bytes]:
    """The headers that all answers about a table share until the next commit, as they are sent, and the beginning of
    its tags."""
    generation = b"%b-%d-%d" % (evidence.store_id[:8].encode(), evidence.number, evidence.generation)
    return header_lines(_between_commits(evidence)), generation


def is_known(etags: bytes, current: bytes) -> bool:
    """Whether ``If-None-Match`` names the current tag. https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match"""
    if etags == current or etags.strip() == b"*":
        return True
    return current in (each.strip().removeprefix(b"W/") for each in etags.split(b","))


def in_header(text: str) -> bytes:
    """Makes a sentence fit for a header: printable ASCII, on one line, at most 500 characters."""
    return _NOT_IN_HEADERS.sub("?", text)[:500].encode()
