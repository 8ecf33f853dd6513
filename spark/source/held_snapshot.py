"""A snapshot of a live database, held open and handed to every Spark task that reads rows.

``SET TRANSACTION SNAPSHOT`` works only while the exporting transaction lives, and fails loudly after. That a task
really imported it is checked by the query itself (``guard``): with a wrong fetch size the driver would read the live
table instead, without a word.
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
"""Under which values are printed, as the topic contract has it; and no limit that a role or database sets."""

_PAGE_BYTES: Final = 8_192
_PAGE_HEADERS_BYTES: Final = (24, 40)
_APPLICATION: Final = "cdc reconcile"
_TRIES: Final = 10

_EXPORT: Final = """
SELECT pg_catalog.pg_export_snapshot(), pg_catalog.pg_current_snapshot()::text,
       pg_catalog.pg_current_wal_insert_lsn()::text
"""
_KIND: Final = """
SELECT c.relkind FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
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
"""What holds a table's rows, as the snapshot sees it, and whether it was locked before: of a partitioned table its
partitions, else the table alone. Not ``pg_partition_tree``, which answers as of now."""


@dataclass(frozen=True, slots=True)
class HeldSnapshot:
    """What a transaction sees, while ``hold`` goes on.

    Attributes:
        exported: its name for ``SET TRANSACTION SNAPSHOT``.
        text: ``pg_current_snapshot()``.
        lsn: H: whatever it sees committed before that.
        heaps: schema and name of each that holds rows of the table, to be read with ONLY.
        taken_at: monotonic time, seconds.
    """

    exported: str
    text: str
    lsn: LSN
    heaps: tuple[tuple[str, str], ...]
    taken_at: float
    connection: psycopg.Connection[Any]

    @property
    def snapshot(self) -> VisibleTransactions:
        """The set of transactions."""
        return VisibleTransactions.parse(self.text)

    def guard(self) -> str:
        """SQL condition that is true under this snapshot and an error under any other, evaluated once a query."""
        told = "('this query reads another snapshot: ' || pg_catalog.pg_current_snapshot()::text)::bool"
        return f"(SELECT CASE WHEN pg_catalog.pg_current_snapshot()::text = '{self.text}' THEN true ELSE {told} END)"

    def init_statement(self) -> str:
        """What a JDBC session runs before its query."""
        return f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{self.exported}'"


def connect(database: PostgresSettings) -> psycopg.Connection[Any]:
    """An autocommit connection with the pinned settings.

    Raises:
        SourceUnreadable: the server does not answer or will not have us.
    """
    options = " ".join(f"-c {name}={value}" for name, value in PINNED.items())
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
        # "from None": the failed connection hangs on the exception and holds the password
        raise SourceUnreadable(
            f"cannot connect to {database.host}:{database.port}/{database.database}: {_first_line(error)}",
            remedy="see whether the server is up and the role may log in (cdc check)",
        ) from None


@contextmanager
def hold(database: PostgresSettings, table: tuple[str, str], lock_timeout_s: float) -> Iterator[HeldSnapshot]:
    """Take a snapshot and hold it to the end of the block.

    The table is locked before, against what no snapshot protects from: after a TRUNCATE or a rewrite it would read as
    empty. Its partitions are those that the snapshot sees: another list, of another moment, would lack rows or have
    some too many.

    Args:
        database: a primary: a standby's snapshot does not say which transactions are in progress.
        table: schema and name of what will be read.
        lock_timeout_s: how long to wait for whoever holds it exclusively.

    Raises:
        SourceUnreadable: the server went away, is a standby, has no such table, or the table stays locked.
    """
    with contextlib.closing(connect(database)) as conn:
        with reading("taking a snapshot"):
            _refuse_standby(conn, database)
            conn.execute(f"SET lock_timeout = {int(lock_timeout_s * 1000)}".encode())
            held = next(filter(None, (_taken(conn, table) for _ in range(_TRIES))), None)
        if held is None:
            raise SourceUnreadable(
                f"{'.'.join(table)} gets new partitions all the time", remedy="try again when that is over"
            )
        yield held


def _taken(conn: psycopg.Connection[Any], table: tuple[str, str]) -> HeldSnapshot | None:
    """A snapshot in a new transaction; None when it sees a partition that came after the locks."""
    kind = conn.execute(_KIND, table).fetchone()
    if kind is None:
        raise SourceUnreadable(f"there is no table {'.'.join(table)}", remedy="see whether it was dropped or renamed")
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
    """Take one snapshot for several tables and hold it to the end of the block.

    Args:
        database: a primary.
        tables: schema and name of each. What somebody holds exclusively or is not there is left out: ``heaps`` are the
            others.

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
    """Lock it, unless that means to wait."""
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
        conn.execute("RELEASE SAVEPOINT before")  # a snapshot is not exported from within one
    return True


def _refuse_standby(conn: psycopg.Connection[Any], database: PostgresSettings) -> None:
    if conn.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,):
        raise SourceUnreadable(
            f"{database.host}:{database.port} is a standby, whose snapshots do not name running transactions",
            remedy="point source.dsn to the primary",
        )


def position_now(database: PostgresSettings) -> LSN:
    """The end of the WAL, flushed, so that a bridge on a server at rest can come to it.

    H may lie behind WAL of no transaction, which nobody flushes on a server at rest. A logical message that nobody
    listens to flushes it; without the right to emit one the server does so by itself within some seconds.
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
    """Translate what psycopg raises in the block.

    Raises:
        SourceUnreadable: naming what was being done.
    """
    try:
        yield
    except psycopg.Error as error:
        raise SourceUnreadable(
            f"PostgreSQL failed while {doing}: {_first_line(error)}", remedy="try again, and see the server's log"
        ) from error


def _at_rest(lsn: LSN) -> LSN:
    """The insert position skips the header of a page that nothing was written to yet; no WAL ends there."""
    rest = lsn % _PAGE_BYTES
    return LSN(lsn - rest) if rest in _PAGE_HEADERS_BYTES else lsn


def _first_line(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
