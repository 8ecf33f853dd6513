"""Finds where a server's WAL ends."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from cdc.base.lsn import LSN
from cdc.bridge.source.connect import source_errors

BLOCK_BYTES: Final = 8_192
"""The block size of heaps and of WAL, in every packaged server."""

_WAL_END: Final = """(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
   ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text"""


def wal_end(conn: psycopg.Connection[Any]) -> LSN:
    """Returns a position that the stream will reach, and before which everything committed that is committed now.

    Raises:
        SourceUnavailable: the connection broke.
    """
    with source_errors("asking where the WAL ends"):
        row = conn.execute(f"SELECT {_WAL_END}".encode()).fetchone()
    assert row is not None
    return at_rest(LSN.parse(row[0]))


def at_rest(lsn: LSN) -> LSN:
    """Returns ``lsn``, or the end of the page before it, if ``lsn`` lies just after a page's header.

    The insert position skips the header (24 bytes, 40 at the start of a segment) of a page to which nothing was written
    yet. On an idle server no WAL ends there, so the stream would never reach it.
    """
    return LSN(lsn - lsn % BLOCK_BYTES) if lsn % BLOCK_BYTES in (24, 40) else lsn
