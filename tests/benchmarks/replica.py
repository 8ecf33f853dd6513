"""What the benchmarks read of a replica database: its recorded cut, its sessions, and checksums of tables."""

from __future__ import annotations

import psycopg
from psycopg import errors, sql

from cdc.base.lsn import LSN, ZERO
from tests.benchmarks.processes import BenchmarkFailed

CUT = "SELECT max(lsn) FROM cdc.cut"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend' AND pid <> ALL (%s)"
COPYING = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND query LIKE 'COPY %%'"
CHECKSUM = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) FROM {} t"


def cut(replica: psycopg.Connection) -> LSN:
    """The LSN whose state the replica shows; zero before the first cut, also while the sink's tables do not exist."""
    try:
        row = replica.execute(CUT).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return ZERO
    return LSN.parse(row[0]) if row and row[0] is not None else ZERO


def greatest_key(replica: psycopg.Connection) -> int | None:
    """The greatest key of the mirrored table; None while it is empty or not there yet."""
    try:
        row = replica.execute("SELECT max(id) FROM orders").fetchone()
    except errors.UndefinedTable:
        return None
    return row[0] if row else None


def backends(admin: psycopg.Connection, database: str, known: set[int]) -> set[int]:
    """Process ids of the database's client sessions beside the known ones."""
    return {pid for (pid,) in admin.execute(BACKENDS, [database, sorted(known)])}


def is_copying(admin: psycopg.Connection, database: str) -> bool:
    """Whether a session of the database is in a COPY, or that was its last statement."""
    row = admin.execute(COPYING, [database]).fetchone()
    return bool(row and row[0])


def checksum(conn: psycopg.Connection, table: str) -> tuple[int, int]:
    """Row count, and a sum over all rows' text that does not depend on their order."""
    conn.execute("SET TimeZone = 'UTC'")
    row = conn.execute(sql.SQL(CHECKSUM).format(sql.Identifier(table))).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def compare(conn: psycopg.Connection, table: str, expected: tuple[int, int]) -> None:
    """Hold a table against a checksum.

    Raises:
        BenchmarkFailed: its rows are others.
    """
    found = checksum(conn, table)
    if found != expected:
        raise BenchmarkFailed(f"{table}: {found[0]:,} rows, checksum {found[1]}; the source: {expected}")
