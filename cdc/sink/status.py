"""What the replica tells of its sink: the cut, and how each table fares. Reads, and takes no lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from cdc.lsn import LSN
from cdc.sink.control import cut, mirrored_table
from cdc.sink.errors import replica_errors
from cdc.sink.locks import shown_query
from cdc.sink.naming import CONTROL_SCHEMA
from cdc.sink.session import lock_holder

_SESSION: Final = """
SELECT CASE WHEN state <> 'active' THEN extract(epoch FROM clock_timestamp() - state_change)::float8 END AS still_s,
  (SELECT extract(epoch FROM clock_timestamp() - min(coalesce(waitstart, query_start)))::float8
   FROM pg_catalog.pg_locks WHERE pg_locks.pid = :pid AND NOT granted) AS waits_s
FROM pg_catalog.pg_stat_activity WHERE pg_stat_activity.pid = :pid
"""
_BLOCKERS: Final = """
WITH waited AS (
  SELECT DISTINCT unnest(pg_catalog.pg_blocking_pids(CAST(:waiting AS integer))) AS pid
  WHERE CAST(:waiting AS integer) IS NOT NULL
), wanted AS (
  SELECT relation FROM pg_catalog.pg_locks WHERE pg_locks.pid = CAST(:waiting AS integer) AND NOT granted
), locks AS (
  -- modes that keep writers out; those of VACUUM and of readers do not
  SELECT held.pid, min(replica_table) AS replica_table
  FROM pg_catalog.pg_locks AS held JOIN cdc.mirrored_table ON table_oid = held.relation
  WHERE name = :name AND held.granted AND held.locktype = 'relation' AND held.pid <> :pid
    AND held.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
    AND held.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  GROUP BY held.pid
)
SELECT pid, coalesce(replica_table, (SELECT min(relation::regclass::text) FROM wanted), '') AS replica_table,
  coalesce(usename, '') AS usename, coalesce(application_name, '') AS application_name, coalesce(state, '') AS state,
  coalesce(query, '') AS query,
  extract(epoch FROM clock_timestamp() - xact_start)::float8 AS held_s,
  pid IN (SELECT pid FROM waited) AS is_waited_for
FROM waited FULL JOIN locks USING (pid) LEFT JOIN pg_catalog.pg_stat_activity USING (pid)
WHERE pid <> 0 ORDER BY held_s DESC NULLS LAST, pid LIMIT 10
"""
"""``pg_blocking_pids`` knows whom a wait is for, also at rows; it says 0 of a prepared transaction."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A replica table.

    Attributes:
        reason: why it is stopped or rebuilt.
        held_by: whose lock keeps rows out, while the table is left out of the cut for that; else empty.
        held_since: since then; else None.
    """

    topic: str
    replica_table: str
    state: str
    rows_applied: int
    reason: str
    held_by: str = ""
    held_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session of the replica that holds a lock which the sink needs.

    Attributes:
        table: the locked replica table; empty when it is a row or something else that the sink waits for.
        who: its role, and the application where it says so.
        doing: its state and its last statement, as far as we may see them.
        held_s: since its transaction began; None when we may not see it.
        waited_s: how long the sink has waited for this lock; None when it does not wait for it at this moment.
    """

    pid: int
    table: str
    who: str
    doing: str
    held_s: float | None
    waited_s: float | None


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The replica. Ages are by its own clock.

    Attributes:
        lsn: of the cut; None before the first, and while the sink catches up.
        applied_lsn: how far rows are applied; None before the first cut.
        commit_ts: of the newest transaction in the cut, µs since 1970.
        running: a sink of this name holds its lock.
        applied_s: since the cut was committed; None before the first.
        level_s: since the topics held nothing that the replica did not.
        still_s: since the sink's session began or ended a statement; None when it has none, or we may not see it, or a
            statement is at work.
        blockers: who holds locks that the sink needs.
    """

    lsn: LSN | None
    applied_lsn: LSN | None
    commit_ts: int
    running: bool
    tables: tuple[TableStatus, ...]
    applied_s: float | None = None
    level_s: float | None = None
    still_s: float | None = None
    blockers: tuple[Blocker, ...] = ()


def read_status(engine: sa.Engine, name: str) -> SinkStatus:
    """How the sink of this name stands; a replica that it has not touched yet has nothing to tell.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
        ReplicaRefused: the role may not read the sink's tables.
    """
    with engine.connect() as connection, replica_errors("telling its cut"):
        if not sa.inspect(connection).has_table(cut.name, schema=CONTROL_SCHEMA):
            return SinkStatus(None, None, 0, running=False, tables=())
        at = connection.execute(
            sa.select(
                cut.c.lsn, cut.c.applied_lsn, cut.c.commit_ts, _age(cut.c.applied_at), _age(cut.c.caught_up_at)
            ).where(cut.c.name == name)
        ).first()
        pid = lock_holder(connection, name)
        still_s, waits_s = _session(connection, pid)
        tables = connection.execute(
            sa.select(mirrored_table).where(mirrored_table.c.name == name).order_by(mirrored_table.c.topic)
        )
        return SinkStatus(
            lsn=at.lsn if at else None,
            applied_lsn=at.applied_lsn if at else None,
            commit_ts=at.commit_ts if at else 0,
            running=pid is not None,
            tables=tuple(
                TableStatus(
                    row.topic,
                    row.replica_table,
                    row.state,
                    row.rows_applied,
                    row.reason or "",
                    row.held_by or "",
                    row.held_since,
                )
                for row in tables
            ),
            applied_s=at[3] if at else None,
            level_s=at[4] if at else None,
            still_s=still_s,
            blockers=_blockers(connection, name, pid, waits_s),
        )


def _age(moment: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
    """Seconds since then, by the replica's clock; the sink's, which wrote it, may be a little ahead."""
    elapsed = sa.extract("epoch", sa.func.clock_timestamp() - moment)
    return sa.func.greatest(sa.cast(elapsed, sa.Float), 0.0)


def _session(connection: sa.Connection, pid: int | None) -> tuple[float | None, float | None]:
    """How long the sink's session has done nothing, and how long it has waited for a lock; None when it does not."""
    row = connection.execute(sa.text(_SESSION), {"pid": pid}).first() if pid is not None else None
    return (None, None) if row is None else (row.still_s, row.waits_s)


def _blockers(connection: sa.Connection, name: str, pid: int | None, waits_s: float | None) -> tuple[Blocker, ...]:
    """Whoever the sink waits for; and whoever holds one of its tables, for it may try again only now and then."""
    rows = connection.execute(
        sa.text(_BLOCKERS), {"name": name, "pid": pid or 0, "waiting": pid if waits_s is not None else None}
    )
    return tuple(
        Blocker(
            pid=row.pid,
            table=row.replica_table,
            who=" ".join(each for each in (row.usename, row.application_name and f"({row.application_name})") if each),
            doing=": ".join(each for each in (row.state, shown_query(row.query)) if each),
            held_s=row.held_s,
            waited_s=waits_s if row.is_waited_for else None,
        )
        for row in rows
    )
