"""A replica on PostgreSQL: Spark's tasks read it by JDBC under a snapshot."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from pyspark.sql import DataFrame, SparkSession

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable, PostgresSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.replicas.side import ComparedPlace, not_reached, recorded_lsn, replica_place
from cdc.spark.source.held_snapshot import HeldSnapshot, connect, hold, hold_free, reading
from cdc.spark.source.rows import SourceRows, TableRows, hashes_of_many, sizes_of

_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class HeldPostgres:
    """Implements ``HeldReplica`` with a snapshot.

    Args:
        spark: the session.
        job: the run.
        database: the replica.
        held: the snapshot.
    """

    spark: SparkSession
    job: ReconcileJob
    database: PostgresSettings
    held: HeldSnapshot

    @property
    def taken_at(self) -> float:
        """The moment, in seconds of the monotonic clock."""
        return self.held.taken_at

    @property
    def state(self) -> str:
        """The transactions that the snapshot sees."""
        return self.held.text

    @property
    def tables(self) -> Sequence[tuple[str, str]]:
        """Schema and name of each table that is held."""
        return self.held.heaps

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The session that holds the snapshot."""
        return self.held.connection

    def recorded(self, table: JobTable) -> tuple[LSN, str]:
        """Returns the LSN at which the replica equals the source, or why this table cannot be compared."""
        return _recorded(self.held.connection, self.job.stream.name, table, self.database)

    def place(self, table: JobTable) -> ComparedPlace:
        """Returns the name of a table."""
        return replica_place(table)

    def rows(self, table: JobTable, where: str | None) -> TableRows:
        """Returns a reader of a table's rows."""
        return SourceRows(self.spark, self.database, self.held, table, where, self.job.connections)

    def sizes(self, tables: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Returns the size of each of these tables that is a plain one."""
        return {each: size for each, size in sizes_of(self.held).items() if each in tables}

    def hashes_of_many(self, tables: Sequence[JobTable]) -> DataFrame:
        """Reads every row of several small tables."""
        return hashes_of_many(self.spark, self.database, self.held, tables, self.job.connections)


class PostgresSide:
    """Implements ``ReplicaSide``.

    Args:
        spark: the session.
        job: the run.
        database: the replica.
    """

    def __init__(self, spark: SparkSession, job: ReconcileJob, database: PostgresSettings) -> None:
        self._spark = spark
        self._job = job
        self._database = database

    def why_not(self, table: JobTable) -> str:
        """Returns why this table cannot be compared, before anything is held; empty if it can."""
        # Without a snapshot: if the table is not there yet, hold() would fail instead of saying why.
        # Somebody may hold a lock on the sink's own tables, in a migration say; we must not wait for ever.
        with contextlib.closing(connect(self._database, lock_timeout_s=self._job.fence_timeout_s)) as conn:
            return _recorded(conn, self._job.stream.name, table, self._database)[1]

    def wait_for(self, lsn: LSN, deadline: float) -> None:
        """Waits until the replica records this LSN or a later one."""
        replica = connect(self._database, lock_timeout_s=self._job.fence_timeout_s)
        with contextlib.closing(replica) as conn, reading("waiting for the replica"):
            while True:
                cut = conn.execute("SELECT lsn::text FROM cdc.cut WHERE name = %s", (self._job.stream.name,)).fetchone()
                if cut is not None and cut[0] is not None and LSN.parse(cut[0]) >= lsn:
                    return
                if time.monotonic() > deadline:
                    raise not_reached(lsn, self._job.fence_timeout_s)
                time.sleep(_PAUSE_S)

    @contextmanager
    def hold(self, tables: Sequence[tuple[str, str]], folder: Path) -> Iterator[HeldPostgres]:  # noqa: ARG002
        """Takes a snapshot and holds it to the end of the block."""
        held = hold(self._database, tables[0], self._job.fence_timeout_s)
        with held if len(tables) == 1 else hold_free(self._database, tables) as snapshot:
            yield HeldPostgres(self._spark, self._job, self._database, snapshot)


def _recorded(
    conn: psycopg.Connection[Any], stream: str, table: JobTable, replica: PostgresSettings
) -> tuple[LSN, str]:
    with reading("looking for the replica's LSN"):
        if conn.execute("SELECT pg_catalog.to_regclass('cdc.cut')").fetchone() == (None,):
            return LSN(0), f"database {replica.database} holds no replica yet; start the sink (cdc sink)"
        cut = conn.execute("SELECT lsn::text FROM cdc.cut WHERE name = %s", (stream,)).fetchone()
        state = conn.execute(
            "SELECT state, coalesce(reason, '') FROM cdc.mirrored_table WHERE name = %s AND topic = %s",
            (stream, table.topic),
        ).fetchone()
    return recorded_lsn(cut, state)
