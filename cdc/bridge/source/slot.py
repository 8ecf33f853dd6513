"""Makes the replication slot, looks at it and drops it; and tells which server and database this is.

https://www.postgresql.org/docs/current/view-pg-replication-slots.html
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as sqlstate
from psycopg import sql

from cdc.base.errors import SourceRefused, SourceUnavailable
from cdc.base.lsn import LSN
from cdc.base.waits import WAITS
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.open_transactions import oldest_transaction
from cdc.contract.record import SourceIdentity
from cdc.contract.slot_state import SlotState

PLUGIN: Final = "pgoutput"

_CREATE_TIMEOUT_S: Final = 60
"""A new slot waits for every transaction that is open when it is made. After a minute, cdc says which these are."""

WAL_END: Final = (
    "CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
    " ELSE pg_catalog.pg_current_wal_lsn() END"
)
"""SQL for the end of the WAL as this server knows it: a standby decodes only what it has replayed."""

# Through jsonb, because invalidation_reason exists only from PostgreSQL 17 on, and must read as NULL before that.
_INSPECT: Final = f"""
SELECT slot_name, coalesce(plugin, ''), coalesce(database, ''), active, active_pid,
       confirmed_flush_lsn::text, restart_lsn::text, wal_status, safe_wal_size,
       pg_catalog.pg_wal_lsn_diff({WAL_END}, restart_lsn)::bigint,
       greatest(pg_catalog.pg_wal_lsn_diff({WAL_END}, confirmed_flush_lsn), 0)::bigint,
       pg_catalog.to_jsonb(s) ->> 'invalidation_reason'
FROM pg_catalog.pg_replication_slots s WHERE slot_name = %s
"""


def inspect_slot(conn: psycopg.Connection[Any], name: str) -> SlotState | None:
    """Returns the slot's state now; None when there is no such slot."""
    with source_errors("inspecting replication slots"):
        row = conn.execute(_INSPECT, (name,)).fetchone()
    if row is None:
        return None
    slot, plugin, database, active, pid, confirmed, restart, status, safe, retained, lag, reason = row
    return SlotState(
        name=slot,
        plugin=plugin,
        database=database,
        active=active,
        active_pid=pid,
        confirmed_flush_lsn=LSN.parse(confirmed) if confirmed else None,
        restart_lsn=LSN.parse(restart) if restart else None,
        wal_status=status,
        safe_wal_size=safe,
        retained_bytes=retained,
        lag_bytes=lag,
        invalidation_reason=reason,
    )


def create_slot(conn: psycopg.Connection[Any], name: str, *, timeout_s: float = _CREATE_TIMEOUT_S) -> LSN:
    """Make a logical slot for pgoutput in this database. The publication must exist already.

    pgoutput looks the publication up as of the change that it decodes, so a slot that is older than its publication
    cannot be read. From PostgreSQL 17 on, the slot is synchronised to standbys that ask for it.

    Args:
        conn: to the source; how long it waits for locks otherwise does not matter here.
        name: the slot's name.
        timeout_s: how long to wait for open transactions.

    Returns:
        The position where changes begin: every transaction that commits after it will be delivered.

    Raises:
        SourceUnavailable: open transactions kept it from starting, or another session made the slot just now.
        SourceRefused: no slot is free, ``wal_level`` is too low, a privilege is missing, or the name is not allowed.
    """
    failover = ", failover => NOT pg_catalog.pg_is_in_recovery()" if conn.info.server_version >= 170000 else ""
    make = sql.SQL(
        "SELECT lsn::text FROM pg_catalog.pg_create_logical_replication_slot({}, {}" + failover + ")"
    ).format(sql.Literal(name), sql.Literal(PLUGIN))
    with source_errors(f"making slot {name}", remedy=f"ALTER ROLE {_role(conn)} REPLICATION;"):
        try:
            with _waiting(conn, name), conn.transaction():
                # The server waits for each transaction by a lock: ``lock_timeout`` would end that sooner, nameless
                conn.execute("SET LOCAL lock_timeout = 0")
                conn.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(int(timeout_s * 1000))))
                row = conn.execute(make).fetchone()
        except sqlstate.QueryCanceled as error:
            cause = _what_it_waits_for(conn)
            raise SourceUnavailable(
                f"slot {name} could not be made within {timeout_s:g} s: it waits {cause.why}", remedy=cause.remedy
            ) from error
        except sqlstate.ConfigurationLimitExceeded as error:
            raise no_slot_free(name, *_count_slots(conn)) from error
        except sqlstate.DuplicateObject as error:
            raise SourceUnavailable(
                f"slot {name} was made by another session just now",
                remedy="wait: cdc looks at the slot again by itself",
            ) from error
        except sqlstate.ObjectNotInPrerequisiteState as error:
            raise _low_wal_level(name, error.diag.message_primary) from error
        except sqlstate.InvalidName as error:
            raise SourceRefused(
                f"slot {name} cannot be made: {error.diag.message_primary}",
                remedy="set source.slot to lower-case letters, digits and underscores, at most 63 of them",
            ) from error
    assert row is not None
    return LSN.parse(row[0])


def refuse_low_wal_level(conn: psycopg.Connection[Any], name: str) -> None:
    """Refuse a server that cannot decode, before a walsender is opened.

    With ``wal_level = minimal`` a server has no walsenders, and would look too busy instead.

    Raises:
        SourceRefused: ``wal_level`` is not ``logical``.
    """
    with source_errors("asking for wal_level"):
        level = conn.execute("SELECT pg_catalog.current_setting('wal_level')").fetchone()
    if level != ("logical",):
        raise _low_wal_level(name, f"wal_level is {level[0] if level else 'unknown'}")


def _low_wal_level(name: str, why: str | None) -> SourceRefused:
    return SourceRefused(
        f"slot {name} cannot be made or read: {why}",
        remedy="ALTER SYSTEM SET wal_level = logical;  -- then restart PostgreSQL",
    )


def drop_slot(conn: psycopg.Connection[Any], name: str) -> None:
    """Drop the slot; nothing happens when there is none.

    Raises:
        SourceUnavailable: somebody is reading from it.
    """
    with source_errors(f"dropping slot {name}", remedy=f"ALTER ROLE {_role(conn)} REPLICATION;"):
        try:
            conn.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", (name,))
        except sqlstate.UndefinedObject:
            return
        except sqlstate.ObjectInUse as error:
            raise SourceUnavailable(
                f"slot {name} cannot be dropped: {error.diag.message_primary}", remedy="stop its reader (cdc run) first"
            ) from error


def identify(conn: psycopg.Connection[Any]) -> SourceIdentity:
    """Returns the cluster, timeline and database that this connection is in; any role may ask.

    The timeline is read from the name of the WAL file being written, because the last checkpoint has the old timeline
    for a while after a promotion. A standby returns the checkpoint's.
    """
    with source_errors("identifying the server"):
        row = conn.execute(
            "SELECT (SELECT system_identifier::text FROM pg_catalog.pg_control_system()),"
            " CASE WHEN pg_catalog.pg_is_in_recovery()"
            "  THEN (SELECT pg_catalog.to_hex(timeline_id) FROM pg_catalog.pg_control_checkpoint())"
            "  ELSE left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) END,"
            " (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())"
        ).fetchone()
    assert row is not None
    return SourceIdentity(system_identifier=row[0], timeline=int(row[1], 16), database_oid=row[2])


def wal_end(conn: psycopg.Connection[Any]) -> LSN | None:
    """Returns the end of the server's WAL; None for a standby, which has not replayed all of it."""
    with source_errors("asking for the WAL's end"):
        row = conn.execute(
            "SELECT CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_lsn()::text END"
        ).fetchone()
    assert row is not None
    return LSN.parse(row[0]) if row[0] else None


def recent_xid(conn: psycopg.Connection[Any]) -> int:
    """Returns a recent 64-bit transaction id, with the epoch that the stream leaves out. That transaction is over.

    Records may name it before the stream has named another one, and no reader may take it for one still to come.
    """
    with source_errors("reading the current transaction id"):
        row = conn.execute("SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text").fetchone()
    assert row is not None
    return int(row[0]) - 1


def _role(conn: psycopg.Connection[Any]) -> str:
    return sql.Identifier(conn.info.user).as_string(conn)


def no_slot_free(name: str, limit: int, idle: Sequence[str]) -> SourceRefused:
    """Returns the error for a slot that cannot be made because all are in use; ``idle`` are slots that nobody reads."""
    unused = f" (idle now: {', '.join(idle)})" if idle else ""
    drop = f"; or drop one that nobody needs: SELECT pg_drop_replication_slot('{idle[0]}');" if idle else ""
    return SourceRefused(
        f"slot {name} cannot be made: all {limit} replication slots are in use{unused}",
        remedy=f"ALTER SYSTEM SET max_replication_slots = {limit + 4};  -- then restart PostgreSQL{drop}",
    )


def _waiting(conn: psycopg.Connection[Any], name: str) -> contextlib.AbstractContextManager[None]:
    """Marks the block as a wait for what a new slot has to wait for now."""
    cause = _what_it_waits_for(conn)
    return WAITS.on("source", f"PostgreSQL to make slot {name}, which waits {cause.why}", cause.remedy)


class _Cause(NamedTuple):
    """Why a new slot takes long. ``why`` completes "waits …"."""

    why: str
    remedy: str


def _what_it_waits_for(conn: psycopg.Connection[Any]) -> _Cause:
    if _is_standby(conn):
        return _Cause(
            "until the primary logs which transactions are running, which an idle primary does not do by itself",
            remedy="on the primary: SELECT pg_log_standby_snapshot();",
        )
    if (oldest := oldest_transaction(conn)) is None:
        return _Cause("for transactions that have ended since", remedy="wait: cdc tries again by itself")
    return _Cause(f"for older transactions; the oldest is {oldest.who}", remedy=oldest.remedy(conn.info.user))


def _is_standby(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)


def _count_slots(conn: psycopg.Connection[Any]) -> tuple[int, list[str]]:
    limit = conn.execute("SELECT pg_catalog.current_setting('max_replication_slots')::int").fetchone()
    assert limit is not None
    idle = conn.execute("SELECT slot_name FROM pg_catalog.pg_replication_slots WHERE NOT active ORDER BY 1").fetchall()
    return limit[0], [name for (name,) in idle]
