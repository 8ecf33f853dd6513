"""A replica table that is replayed from its topic's beginning: what the topic does not hold goes at the end.

Theory of operation. Offsets that no longer fit their topic leave rows in the replica that no record will ever take
away, for instance of keys that were deleted meanwhile. So the topic is read again from its beginning, into the table as
it is, and the keys of all rows that come are kept in a *seen table* beside it, in the same transactions. When the topic
was read to its end, rows whose key was never seen are deleted, in the transaction that makes the table exact. Until
then its readers find it as it was, being brought up to date; its state says ``rebuilding``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import sql

from cdc.sink.postgres.batch import TableStatements
from cdc.sink.postgres.naming import CONTROL_SCHEMA

Session = psycopg.Connection[Any]


class SeenKeys:
    """The keys that a rebuild has met.

    Args:
        session: to the replica; the caller begins and commits.
        name: of the seen table, in schema ``cdc``.
        statements: of the replica table.
    """

    def __init__(self, session: Session, name: str, statements: TableStatements) -> None:
        self._session = session
        self._table = sql.Identifier(CONTROL_SCHEMA, name)
        self._target = statements.target
        self._keys = sql.SQL(", ").join(map(sql.Identifier, statements.key))
        self.remember = sql.SQL("INSERT INTO {} SELECT {} FROM {}").format(
            self._table, self._keys, statements.staged_rows
        )
        self._unseen = sql.SQL("DELETE FROM {} AS t WHERE NOT EXISTS (SELECT FROM {} AS s WHERE {})").format(
            self._target, self._table, statements.same_key
        )

    def begin(self) -> None:
        """Nothing is seen yet."""
        self._session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table))
        self._session.execute(
            sql.SQL("CREATE TABLE {} AS SELECT {} FROM {} WITH NO DATA").format(self._table, self._keys, self._target)
        )

    def finish(self) -> int:
        """Delete what was not seen; returns how many rows that were."""
        self._session.execute(sql.SQL("ANALYZE {}").format(self._table))
        # Pinned off for a batch's few keys; these are all keys of the table
        self._session.execute("SET LOCAL enable_hashjoin = on")
        self._session.execute("SET LOCAL enable_mergejoin = on")
        gone = self._session.execute(self._unseen).rowcount
        self._session.execute("SET LOCAL enable_hashjoin = off")
        self._session.execute("SET LOCAL enable_mergejoin = off")
        self.drop()
        return gone

    def drop(self) -> None:
        """Forget them."""
        self._session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table))


def seen_table(name: str, topic: str) -> str:
    """The name of the seen table of a sink's topic."""
    return f"seen_{blake2b(f'{name}/{topic}'.encode(), digest_size=8).hexdigest()}"


def has_rows(session: Session, target: sql.Composable) -> bool:
    """Whether a replica table holds anything."""
    row = session.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(target)).fetchone()
    return row == (True,)
