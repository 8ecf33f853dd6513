"""Rebuilds a replica table: its topic is read again from the beginning, and rows that the topic lacks are deleted.

Theory of operation. When the stored offsets no longer fit the topic, the replica may hold rows that no record will ever
delete, for instance rows whose tombstone is gone. So the sink reads the topic from its beginning into the table as it
is. In the same transactions, it keeps the keys of all rows in a *seen table*. When it has read the topic to its end, it
deletes the rows whose key it never saw, in the transaction that makes the table exact. Until then readers of the table
find the old rows, which are brought up to date bit by bit; its state says ``rebuilding``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import sql

from cdc.sink.postgres.batch import TableStatements
from cdc.sink.postgres.control import CONTROL_SCHEMA

Session = psycopg.Connection[Any]


class SeenKeys:
    """The keys that a rebuild has met.

    Args:
        session: to the replica; the caller begins and commits.
        name: the seen table's name, in schema ``cdc``.
        statements: the statements of the replica table.
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
        """Creates the seen table, empty."""
        self._session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table))
        self._session.execute(
            sql.SQL("CREATE TABLE {} AS SELECT {} FROM {} WITH NO DATA").format(self._table, self._keys, self._target)
        )

    def finish(self) -> int:
        """Deletes the rows whose keys were not seen. Returns how many they were."""
        self._session.execute(sql.SQL("ANALYZE {}").format(self._table))
        # The session turns these joins off, which suits the few keys of a batch. Here, all keys of a table are joined
        self._session.execute("SET LOCAL enable_hashjoin = on")
        self._session.execute("SET LOCAL enable_mergejoin = on")
        gone = self._session.execute(self._unseen).rowcount
        self._session.execute("SET LOCAL enable_hashjoin = off")
        self._session.execute("SET LOCAL enable_mergejoin = off")
        self.drop()
        return gone

    def drop(self) -> None:
        """Drops the seen table."""
        self._session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self._table))


def seen_table(name: str, topic: str) -> str:
    """Returns the name of the seen table for a topic of a sink."""
    return f"seen_{blake2b(f'{name}/{topic}'.encode(), digest_size=8).hexdigest()}"


def has_rows(session: Session, target: sql.Composable) -> bool:
    """Returns whether a replica table holds any row."""
    row = session.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(target)).fetchone()
    return row == (True,)
