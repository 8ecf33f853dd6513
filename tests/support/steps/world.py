"""The tables of a trial, and a seeded writer that changes them whatever shape they have by now."""

from __future__ import annotations

import random
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from tests.support.servers import Database

ROWS: Final = 240

_TABLES: Final = {
    "t": """
        CREATE TABLE t (id int PRIMARY KEY, alt int NOT NULL UNIQUE, n int, note text, big text);
        ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
        INSERT INTO t SELECT i, -i, 0, 'first', repeat(md5(i::text), 80) FROM generate_series(1, {rows}) i""",
    "t_new": """
        CREATE TABLE t_new (id int PRIMARY KEY, alt int NOT NULL UNIQUE, n int, note text, big text);
        ALTER TABLE t_new ALTER big SET STORAGE EXTERNAL;
        INSERT INTO t_new SELECT i, -i, 7, 'new', repeat(md5('new' || i), 80) FROM generate_series(1, {rows}, 2) i""",
    "pair": """
        CREATE TABLE pair (a int, id int, n int, v numeric, PRIMARY KEY (id, a));
        INSERT INTO pair SELECT i % 3, i, 0, i / 7.0 FROM generate_series(1, {rows}) i""",
    "parts": """
        CREATE TABLE parts (id int PRIMARY KEY, n int, note text) PARTITION BY RANGE (id);
        CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (100);
        CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (100) TO (MAXVALUE);
        INSERT INTO parts SELECT i, 0, 'first' FROM generate_series(1, {rows}) i""",
    "other": """
        CREATE TABLE other (id int PRIMARY KEY, n int, note text);
        INSERT INTO other SELECT i, 0, 'first' FROM generate_series(1, {rows}) i""",
}
_LEFT_OVER: Final = "t_old, t_aside, away, renamed, joins"

# What scenarios and disturbances have in common. They meet each other, in any order.
OTHER_ANEW: Final = """
BEGIN; DROP TABLE IF EXISTS other; CREATE TABLE other (id int PRIMARY KEY, n int, note text);
INSERT INTO other SELECT i, 5, 'made again' FROM generate_series(1, 70) i; COMMIT
"""
SWAP: Final = """
BEGIN; CREATE TABLE IF NOT EXISTS t_new (LIKE t INCLUDING ALL);
ALTER TABLE t RENAME TO t_aside; ALTER TABLE t_new RENAME TO t; ALTER TABLE t_aside RENAME TO t_new; COMMIT
"""
NEW_KEY: Final = """
DO $$ BEGIN EXECUTE (
    SELECT format('ALTER TABLE t DROP CONSTRAINT %I, ADD PRIMARY KEY (alt)', conname)
    FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'p'
); END $$
"""
_SHAPE: Final = """
SELECT relname, string_agg(attname || ' ' || atttypid::regtype, ',' ORDER BY attnum), relreplident,
    (SELECT indkey::text FROM pg_index WHERE indrelid = c.oid AND indisprimary),
    (SELECT count(*) FROM pg_inherits WHERE inhparent = c.oid)
FROM pg_class c JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') GROUP BY c.oid ORDER BY 1
"""

_LEAVES_BIG_ALONE: Final = "UPDATE {table} SET n = n + 1 WHERE id BETWEEN %(one)s AND %(one)s + 5"
_STATEMENTS: Final = (
    _LEAVES_BIG_ALONE,
    _LEAVES_BIG_ALONE,
    "DELETE FROM {table} WHERE id BETWEEN %(one)s AND %(one)s + 2",
    "UPDATE {table} SET id = id + 1000, n = n + 1 WHERE id = %(one)s",
    "UPDATE {table} SET id = id - 1000 WHERE id > 1000",
    "UPDATE {table} SET n = -n WHERE id %% 5 = %(five)s",
)
_INSERTS: Final = {
    "t": "INSERT INTO {table} SELECT %(new)s, -%(new)s, 1, 'later', repeat(md5(%(new)s::text), 80)",
    "t_new": "INSERT INTO {table} SELECT %(new)s, -%(new)s, 1, 'later', repeat(md5(%(new)s::text), 80)",
    "pair": "INSERT INTO {table} SELECT 9, %(new)s, 1, %(new)s / 3.0",
    "parts": "INSERT INTO {table} SELECT %(new)s, 1, 'later'",
    "other": "INSERT INTO {table} SELECT %(new)s, 1, 'later'",
}


class World:
    """The captured database of a life; its tables can be brought back to how they were.

    Args:
        source: an empty database.
    """

    def __init__(self, source: Database) -> None:
        self._source = source
        for table in _TABLES:
            self._make(table)
        self._shapes = self._look()

    def renew(self) -> list[str]:
        """Make anew, with their first rows, the tables that a disturbance has bent out of shape; which."""
        found = self._look()
        bent = [table for table in _TABLES if found.get(table) != self._shapes[table]]
        for table in bent:
            self._source.execute(f"DROP TABLE IF EXISTS {table} CASCADE")
        left_over = _LEFT_OVER if "parts" not in bent else f"{_LEFT_OVER}, parts_low"
        self._source.execute(f"DROP TABLE IF EXISTS {left_over}")
        for table in bent:
            self._make(table)
        return bent

    def _make(self, table: str) -> None:
        self._source.execute(_TABLES[table].format(rows=ROWS))

    def _look(self) -> dict[str, tuple[object, ...]]:
        return {name: tuple(shape) for name, *shape in self._source.execute(_SHAPE)}


def names(source: Database) -> list[str]:
    """The trial's tables that there are now, with a key: ``schema.table`` each."""
    found = source.execute(
        "SELECT 'public.' || relname FROM pg_class c WHERE relnamespace = 'public'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT relispartition"
        " AND EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary) ORDER BY 1"
    )
    return [name for (name,) in found]


class Writer:
    """Random transactions; what a changed shape, a lock or a missing table refuses is left undone.

    Args:
        source: the captured database.
        rng: of its choices.
    """

    def __init__(self, source: Database, rng: random.Random) -> None:
        self._source = source
        self._rng = rng
        self._next = 5000

    def write(self, transactions: int) -> None:
        """So many transactions, some of which are rolled back in whole or in part."""
        with self._source.connect(options="-c lock_timeout=300ms") as connection:
            for _ in range(transactions):
                try:
                    with connection.transaction(force_rollback=self._rng.random() < 0.1):
                        for _ in range(self._rng.randrange(1, 5)):
                            self._change(connection)
                except (errors.LockNotAvailable, errors.DeadlockDetected):
                    continue

    def touch_all(self) -> None:
        """Change a row of every table, so that the stream describes each as it is now."""
        for table in names(self._source):
            self._source.execute(
                f"UPDATE {table} SET n = coalesce(n, 0) + 1 WHERE ctid = (SELECT min(ctid) FROM ONLY {table})"
                if table != "public.parts"
                else "UPDATE parts SET n = n + 1 WHERE id = (SELECT min(id) FROM parts)"
            )

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        table = self._rng.choice(list(_INSERTS))
        self._next += 1
        statement = _INSERTS[table] if self._rng.random() < 0.4 else self._rng.choice(_STATEMENTS)
        values = {"one": self._rng.randrange(1, ROWS), "five": self._rng.randrange(5), "new": self._next}
        query = sql.SQL(statement).format(table=sql.Identifier(table))
        try:
            with connection.transaction(force_rollback=self._rng.random() < 0.1):
                connection.execute(query, values)
        except (errors.UndefinedTable, errors.UndefinedColumn, errors.SyntaxError, errors.DatatypeMismatch):
            return
        except errors.IntegrityError:
            return
