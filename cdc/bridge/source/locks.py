"""Finds who stands in the way: whose locks on tables keep a statement of ours from getting its own.

After ``lock_timeout``, PostgreSQL cancels a statement without a word about what it waited for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import psycopg

from cdc.base.errors import SourceBusy, SourceLocked
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.partitions import with_partitions

Wanted: TypeAlias = Literal["AccessShareLock", "ShareUpdateExclusiveLock"]
"""The locks that are taken by reading a table, and by putting it into a publication."""

_IN_THE_WAY: Final[dict[Wanted, list[str]]] = {
    "AccessShareLock": ["AccessExclusiveLock"],
    "ShareUpdateExclusiveLock": [
        "ShareUpdateExclusiveLock",
        "ShareLock",
        "ShareRowExclusiveLock",
        "ExclusiveLock",
        "AccessExclusiveLock",
    ],
}
"""https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-TABLES"""

# Whoever waits for a lock also blocks those who queue up later. A prepared transaction has no process. On a standby the
# process is the one that replays.
_HOLDERS: Final = f"""
SELECT n.nspname || '.' || c.relname, l.mode, l.granted, l.pid, a.usename::text, a.application_name,
  date_trunc('second', a.xact_start)::text
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_class c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.mode = ANY (%(modes)s)
  AND l.relation IN (SELECT t.relid FROM unnest(%(tables)s::oid[]) AS root
    CROSS JOIN LATERAL {with_partitions("root")} t WHERE t.relid = root OR %(with_partitions)s)
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
ORDER BY l.granted DESC, a.xact_start, l.pid, c.oid LIMIT 3
"""


@contextlib.contextmanager
def naming_locks(conn: psycopg.Connection[Any], tables: Sequence[int], wanted: Wanted) -> Iterator[None]:
    """Name who holds the lock that the block waited for in vain. No transaction may be open around the block.

    Args:
        conn: the connection that the block uses.
        tables: oids of the tables that the block locks; reading a partitioned table locks its partitions, too.
        wanted: the lock that the block takes.

    Raises:
        SourceLocked: raised instead of the block's ``SourceBusy``. Names table, lock and process, and how to end it.
    """
    try:
        yield
    except SourceBusy as error:
        with source_errors("looking for locks"):
            values = {
                "tables": list(tables),
                "modes": _IN_THE_WAY[wanted],
                "with_partitions": wanted == "AccessShareLock",
            }
            rows = conn.execute(_HOLDERS.encode(), values).fetchall()
        if not rows:
            raise
        pids = [f"SELECT pg_terminate_backend({row[3]});" for row in rows if row[3] is not None]
        remedy = f"let it finish, or: {' '.join(dict.fromkeys(pids))}" if pids else "end the prepared transaction"
        raise SourceLocked(f"{'; '.join(_told(*row) for row in rows)}; {error.message}", remedy=remedy) from error


def _told(
    table: str, mode: str, granted: bool, pid: int | None, user: str | None, application: str | None, since: str | None
) -> str:
    who = "a prepared transaction" if pid is None else f"pid {pid}"
    details = [
        f"user {user}" if user else "",
        f"application {application!r}" if application else "",
        f"in a transaction since {since}" if since else "",
    ]
    known = ", ".join(filter(None, details))
    return f"{who}{f' ({known})' if known else ''} {'holds' if granted else 'waits for'} {mode} on {table}"
