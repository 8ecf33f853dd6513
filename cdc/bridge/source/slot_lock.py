"""Which process may go for the slot: whoever holds this advisory lock of the source, on its walsender.

PostgreSQL lets one session read from a slot, but that session begins only when it is known where to go on, and that is
known only after the others are fenced. The lock stands for the slot in between. It belongs to the walsender that will
read from the slot, so it lives as long as that session and no longer: the server ends both together, after
``wal_sender_timeout`` at the latest. Advisory locks are taken on a standby, too. They are not copied to one: after a
failover, as after a restart, nobody holds the lock, and nobody the slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.bridge.source.connect import source_errors

STANDSTILL_S: Final = 300
"""A walsender has no ``wal_sender_timeout`` before it streams. If its owner stands still meanwhile, the lock goes after
this time. No step of a start takes so long: the longest waits two minutes for a Kafka transaction that hides an end."""

_KEY: Final = "pg_catalog.hashtextextended('cdc bridge of slot ' || {slot}::text, 0)"
_TAKE: Final = (
    "SELECT pg_catalog.set_config('idle_session_timeout', {standstill}, false), pg_catalog.pg_backend_pid()::text,"
    " (SELECT backend_start::text FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid())"
    " WHERE pg_catalog.pg_try_advisory_lock(" + _KEY + ")"
)
# A key of 64 bits is shown in two halves; objsubid tells it from a key that was given in two
_HOLDER: Final = (
    "SELECT l.pid, coalesce(a.backend_start::text, '') FROM pg_catalog.pg_locks l"
    " LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"
    " AND (l.classid::bigint << 32 | l.objid::bigint) = " + _KEY
)


@dataclass(frozen=True, slots=True)
class Holder:
    """A session of the server. After a restart, another one may have its process id, but did not begin with it."""

    pid: int
    began: str


def take_statement(slot: str) -> bytes:
    """SQL that takes the lock of a slot, without waiting: pid and beginning of the session, no row if others hold it.

    Taken again by its holder, it succeeds, and the server waits for the whole standstill again.
    """
    values = {"slot": sql.Literal(slot), "standstill": sql.Literal(f"{STANDSTILL_S}s")}
    return sql.SQL(_TAKE).format(**values).as_bytes(None)


def lock_holder(conn: psycopg.Connection[Any], slot: str) -> Holder | None:
    """Who holds the lock of a slot now."""
    with source_errors("looking for whoever holds the slot"):
        row = conn.execute(sql.SQL(_HOLDER).format(slot=sql.Literal(slot))).fetchone()
    return None if row is None else Holder(*row)
