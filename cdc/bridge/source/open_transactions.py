"""Finds the oldest transaction that may still write: the server keeps WAL for it, and a new slot waits for it.

Only transactions with an id count, in any database of the cluster, and prepared ones as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.table import quoted

_OLDEST: Final = """
SELECT pid, gid, owner, database, application, state, since::timestamptz(0)::text,
  extract(epoch FROM clock_timestamp() - since)::float8
FROM (
  SELECT pid, NULL::text AS gid, usename::text AS owner, datname::text AS database, application_name AS application,
    coalesce(state, '') AS state, xact_start AS since, backend_xid AS xid
  FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_catalog.pg_backend_pid()
  UNION ALL
  SELECT NULL, gid, owner::text, database::text, '', 'prepared', prepared, transaction
  FROM pg_catalog.pg_prepared_xacts
) AS open
ORDER BY age(xid) DESC, pid LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest transaction with an id, in any database of the cluster.

    Attributes:
        pid: its process; None for a prepared transaction, which has a ``gid`` instead.
        state: what ``pg_stat_activity`` says, or ``prepared``; empty when our role may not see it.
        since: when it began, as text; None when our role may not see it.
        age_s: the seconds since then.
    """

    pid: int | None
    gid: str | None
    owner: str | None
    database: str | None
    application: str | None
    state: str
    since: str | None
    age_s: float | None

    @property
    def who(self) -> str:
        """Names it, with what is known of it."""
        what = f"prepared transaction '{self.gid}'" if self.gid is not None else f"a transaction of pid {self.pid}"
        details = [f"user {self.owner}" if self.owner else "", f"database {self.database}" if self.database else ""]
        if self.gid is None:
            details += [f"application {self.application!r}" if self.application else "", self.state]
        since = f"since {self.since}" if self.since else "for longer than this role may see"
        return f"{what} ({', '.join(filter(None, details))}), open {since}"

    def remedy(self, role: str) -> str:
        """Returns the remedy that ends it; ``role`` is the one that looked."""
        if self.gid is not None:
            gid = sql.Literal(self.gid).as_string(None)
            return f"in database {self.database}: COMMIT PREPARED {gid}; or ROLLBACK PREPARED {gid};"
        see = "" if self.since else f" -- to see since when: GRANT pg_read_all_stats TO {quoted(role)};"
        return f"let it finish, or: SELECT pg_terminate_backend({self.pid});{see}"


def oldest_transaction(conn: psycopg.Connection[Any]) -> OpenTransaction | None:
    """Returns the oldest transaction of others; None when there is none. What our role may not see is None."""
    with source_errors("looking for open transactions"):
        oldest = conn.execute(_OLDEST).fetchone()
    return None if oldest is None else OpenTransaction(*oldest)
