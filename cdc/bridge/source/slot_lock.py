"""Decides which process may go for the slot: the one whose walsender holds this advisory lock of the source.

PostgreSQL lets one session read from a slot. But that session cannot begin until it is known where to go on, which is
known only after the others are fenced. The lock stands for the slot in between. It belongs to the walsender that will
read from the slot, so it lives as long as that session and no longer: the server ends both together, after
``wal_sender_timeout`` at the latest. A standby takes advisory locks, too, but they are not copied to standbys. So after
a failover, as after a restart, nobody holds the lock or the slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.bridge.source.connect import source_errors

STANDSTILL_S: Final = 300
"""A walsender has no ``wal_sender_timeout`` before it streams. If its owner stands still meanwhile, the server ends it
after this time. No step of a start takes so long: the longest waits two minutes for a Kafka transaction that hides the
end of a topic."""

_KEY: Final = "pg_catalog.hashtextextended('cdc bridge of slot ' || {slot}::text, 0)"
_TAKE: Final = (
    "SELECT pg_catalog.set_config('idle_session_timeout', {standstill}, false), pg_catalog.pg_backend_pid()::text,"
    " (SELECT backend_start::text FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid())"
    " WHERE pg_catalog.pg_try_advisory_lock(" + _KEY + ")"
)
# pg_locks shows a 64-bit key in two halves; objsubid tells it from a key that was given as two numbers
_HOLDER: Final = (
    "SELECT l.pid, coalesce(a.backend_start::text, '') FROM pg_catalog.pg_locks l"
    " LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"
    " AND (l.classid::bigint << 32 | l.objid::bigint) = " + _KEY
)


@dataclass(frozen=True, slots=True)
class Holder:
    """A session of the server. After a restart, another session may get its process id, but not its beginning."""

    pid: int
    began: str


def take_statement(slot: str) -> bytes:
    """Returns SQL that takes the lock of a slot without waiting; it returns no row if others hold the lock.

    The row has pid and beginning of the session. The holder may take the lock again: the time until the server would
    end an idle session then starts anew.
    """
    values = {"slot": sql.Literal(slot), "standstill": sql.Literal(f"{STANDSTILL_S}s")}
    return sql.SQL(_TAKE).format(**values).as_bytes(None)


def lock_holder(conn: psycopg.Connection[Any], slot: str) -> Holder | None:
    """Returns the session that holds the lock of a slot now; None when none does."""
    with source_errors("looking for whoever holds the slot"):
        row = conn.execute(sql.SQL(_HOLDER).format(slot=sql.Literal(slot))).fetchone()
    return None if row is None else Holder(*row)
