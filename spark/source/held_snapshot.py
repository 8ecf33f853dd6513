"""Holds a snapshot of a live database open and hands it to every Spark task that reads rows.

``SET TRANSACTION SNAPSHOT`` works only while the exporting transaction is open, and is an error afterwards. Each query
also checks that its task has imported the snapshot (``guard``): with a wrong fetch size, the JDBC driver would silently
read the live table instead.
https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-SNAPSHOT-SYNCHRONIZATION
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import PostgresSettings
from cdc.spark.errors import SourceUnreadable
from cdc.spark.source.sql import quoted
from cdc.spark.source.visibility import VisibleTransactions

PINNED: Final[Mapping[str, str]] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO,YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "search_path": "pg_catalog",
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""Session settings: values are printed as the topic contract prescribes, and no role's or database's timeout counts."""

_PAGE_BYTES: Final = 8_192
_PAGE_HEADERS_BYTES: Final = (24, 40)
"""The header of a WAL page, and the longer one of a segment's first page."""
_APPLICATION: Final = "cdc reconcile"
_TRIES: Final = 10
"""How often to take the locks again because a partition was added meanwhile."""

_EXPORT: Final = """
SELECT pg_catalog.pg_export_snapshot(), pg_catalog.pg_current_snapshot()::text,
       pg_catalog.pg_current_wal_insert_lsn()::text
"""
KIND: Final = """
SELECT c.relkind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
"""Asks before the snapshot what a table is: ``p`` if it has partitions, ``r`` if not, nothing if there is none."""
_HEAPS: Final = """
WITH RECURSIVE tree AS (
  SELECT c.oid, c.relkind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = %s AND c.relname = %s
  UNION ALL
  SELECT c.oid, c.relkind FROM tree
  JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
  WHERE tree.relkind = 'p'
)
SELECT n.nspname, c.relname, EXISTS (
  SELECT FROM pg_catalog.pg_locks l
  WHERE l.pid = pg_catalog.pg_backend_pid() AND l.locktype = 'relation' AND l.relation = tree.oid
)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE tree.relkind <> 'p' ORDER BY 1, 2
"""
"""Finds the heaps with a table's rows as the snapshot sees them (its partitions, or the table itself), and whether we
hold a lock on each. ``pg_partition_tree`` would not do: it ignores the snapshot and answers as of now."""


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """A snapshot that stays valid inside the block of ``hold`` or ``hold_free``.

    Attributes:
        exported: its name for ``SET TRANSACTION SNAPSHOT``.
        text: its ``pg_current_snapshot()``.
        lsn: H: everything that the snapshot sees committed before this position.
        heaps: schema and name of each heap that holds rows of the table, to be read with ONLY.
        taken_at: when it was taken, in seconds of the monotonic clock.
        connection: the session that holds it.
    """

    exported: str
    text: str
    lsn: LSN
    heaps: tuple[tuple[str, str], ...]
    taken_at: float
    connection: psycopg.Connection[Any]

    @property
    def snapshot(self) -> VisibleTransactions:
        """The set of transactions that the snapshot sees."""
        return VisibleTransactions.parse(self.text)

    def guard(self) -> str:
        """Returns a SQL condition that is true under this snapshot and an error under any other.

        PostgreSQL evaluates it once per query, because it is a subquery without parameters.
        """
        told = "('this query reads another snapshot: ' || pg_catalog.pg_current_snapshot()::text)::bool"
        return f"(SELECT CASE WHEN pg_catalog.pg_current_snapshot()::text = '{self.text}' THEN true ELSE {told} END)"

    def init_statement(self) -> str:
        """Returns the SQL that a JDBC session has to run before its query."""
        return f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{self.exported}'"


def connect(database: PostgresSettings, *, lock_timeout_s: float = 0) -> psycopg.Connection[Any]:
    """Opens an autocommit connection with the pinned settings.

    Args:
        database: where to connect.
        lock_timeout_s: how long a statement may wait for somebody's lock; 0 for ever.

    Raises:
        SourceUnreadable: the server does not answer or rejects the connection.
    """
    settings = {**PINNED, "lock_timeout": f"{int(lock_timeout_s * 1000)}"}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    try:
        return psycopg.connect(
            host=database.host,
            port=database.port,
            dbname=database.database,
            user=database.user,
            password=database.password.get_secret_value() if database.password else None,
            sslmode=database.sslmode,
            sslrootcert=database.sslrootcert,
            application_name=_APPLICATION,
            client_encoding="UTF8",
            connect_timeout=10,
            options=options,
            autocommit=True,
        )
    except psycopg.Error as error:
        # "from None", because the exception refers to the failed connection, which holds the password.
        raise SourceUnreadable(
            f"cannot connect to {database.address}: {_first_line(error)}",
            remedy="check with cdc check whether the server is up and the role may log in",
        ) from None


@contextmanager
def hold(database: PostgresSettings, table: tuple[str, str], lock_timeout_s: float) -> Iterator[HeldSnapshot]:
    """Takes a snapshot and holds it to the end of the block.

    The table is locked first, because a snapshot does not protect against TRUNCATE or a rewrite: the table would read
    as empty afterwards. Its partitions are those that the snapshot sees. A list from another moment could have some
    too few or too many.

    Args:
        database: a primary, because a standby's snapshot does not tell which transactions are in progress.
        table: schema and name of the table to read.
        lock_timeout_s: how long to wait for a conflicting lock.

    Raises:
        SourceUnreadable: the server went away, is a standby, does not have the table, or the table stays locked.
    """
    with contextlib.closing(connect(database, lock_timeout_s=lock_timeout_s)) as conn:
        with reading("taking a snapshot"):
            _refuse_standby(conn, database)
            held = next(filter(None, (_taken(conn, table) for _ in range(_TRIES))), None)
        if held is None:
            raise SourceUnreadable(
                f"{'.'.join(table)} got a new partition at each of {_TRIES} attempts to lock it",
                remedy="try again when no more partitions are being added",
            )
        yield held


def _taken(conn: psycopg.Connection[Any], table: tuple[str, str]) -> HeldSnapshot | None:
    """Takes a snapshot in a new transaction; returns None if it sees a partition that was added after the locks."""
    kind = conn.execute(KIND, table).fetchone()
    if kind is None:
        raise SourceUnreadable(f"there is no table {'.'.join(table)}", remedy="check whether it was dropped or renamed")
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    only = "" if kind[0] == "p" else "ONLY "
    conn.execute(f"LOCK TABLE {only}{quoted(*table)} IN ACCESS SHARE MODE".encode())
    row = conn.execute(_EXPORT).fetchone()
    assert row is not None
    heaps = conn.execute(_HEAPS, table).fetchall()
    if not all(is_locked for *_, is_locked in heaps):
        conn.execute("ROLLBACK")
        return None
    names = tuple((namespace, name) for namespace, name, _ in heaps)
    return HeldSnapshot(row[0], row[1], _at_rest(LSN.parse(row[2])), names, time.monotonic(), conn)


@contextmanager
def hold_free(database: PostgresSettings, tables: Sequence[tuple[str, str]]) -> Iterator[HeldSnapshot]:
    """Takes one snapshot for several tables and holds it to the end of the block.

    Args:
        database: a primary.
        tables: schema and name of each table. A table that is missing or locked by somebody is left out; ``heaps`` has
            the others.

    Raises:
        SourceUnreadable: the server went away, or is a standby.
    """
    with contextlib.closing(connect(database)) as conn:
        with reading("taking a snapshot of several tables"):
            _refuse_standby(conn, database)
            conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            free = tuple(each for each in tables if _is_free(conn, each))
            row = conn.execute(_EXPORT).fetchone()
            assert row is not None
            held = HeldSnapshot(row[0], row[1], _at_rest(LSN.parse(row[2])), free, time.monotonic(), conn)
        yield held


def _is_free(conn: psycopg.Connection[Any], table: tuple[str, str]) -> bool:
    """Locks a table if that is possible without waiting, and tells whether it was."""
    conn.execute("SAVEPOINT before")
    try:
        conn.execute(f"LOCK TABLE ONLY {quoted(*table)} IN ACCESS SHARE MODE NOWAIT".encode())
    except (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.UndefinedTable,
        psycopg.errors.InvalidSchemaName,
        psycopg.errors.WrongObjectType,
    ):
        conn.execute("ROLLBACK TO SAVEPOINT before")
        return False
    finally:
        conn.execute("RELEASE SAVEPOINT before")  # PostgreSQL cannot export a snapshot from a subtransaction
    return True


def _refuse_standby(conn: psycopg.Connection[Any], database: PostgresSettings) -> None:
    if conn.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,):
        raise SourceUnreadable(
            f"{database.host}:{database.port} is a standby, whose snapshots do not list running transactions",
            remedy="point source.dsn to the primary",
        )


def position_now(database: PostgresSettings) -> LSN:
    """Flushes the WAL and returns its end, so that the bridge can reach it even if the server is idle.

    The position may follow WAL that belongs to no transaction, and on an idle server nothing flushes that at once. A
    logical message that nobody listens to flushes it. Without the right to emit one, we rely on the server, which does
    so by itself within some seconds.
    """
    with contextlib.closing(connect(database)) as conn, reading("asking for the WAL position"):
        with contextlib.suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
            flushing = "(false, 'cdc', '', true)" if conn.info.server_version >= 170000 else "(true, 'cdc', '')"
            conn.execute(f"SELECT pg_catalog.pg_logical_emit_message{flushing}".encode())
        row = conn.execute("SELECT pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return _at_rest(LSN.parse(row[0]))


@contextmanager
def reading(doing: str) -> Iterator[None]:
    """Translates psycopg's errors in the block.

    Raises:
        SourceUnreadable: PostgreSQL failed; the message names what was being done.
    """
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise SourceUnreadable(
            f"another session's lock did not go away while {doing}: {_first_line(error)}",
            remedy="find that session in pg_locks and end it, or allow more time with --fence-timeout",
        ) from error
    except psycopg.Error as error:
        raise SourceUnreadable(
            f"PostgreSQL failed while {doing}: {_first_line(error)}", remedy="see the server's log, then try again"
        ) from error


def _at_rest(lsn: LSN) -> LSN:
    """Moves a position back that lies just after a page header.

    At the start of a page the insert position already skips the header. But no WAL ends there until something is
    written to the page.
    """
    rest = lsn % _PAGE_BYTES
    return LSN(lsn - rest) if rest in _PAGE_HEADERS_BYTES else lsn


def _first_line(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
