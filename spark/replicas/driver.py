"""A replica that the job reads itself, in one transaction, through the database's own driver in Python.

Spark's tasks would read by JDBC on connections of their own, each at another moment. And only a place that knows the
exact value can print it as PostgreSQL does: neither SQLite nor a JDBC driver does so with floating point numbers. So
one connection reads the rows at one moment, and Spark gets their hashes as Parquet, and whole rows for the keys that
differ. That is 16 bytes for each row. Workers need not reach the replica.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError
from cdc.spark.replicas.side import ComparedPlace, not_reached, recorded_lsn, replica_place
from cdc.spark.replicas.texts import StoredRows, hashed
from cdc.spark.source.rows import HASHES_DDL, ROWS_DDL, TableRows
from cdc.spark.source.sql import quoted

_PAUSE_S: Final = 0.5
_AT_ONCE: Final = 10_000
_ROW_BYTES: Final = 256
"""How many bytes a row is taken to have: counting them would read the whole table."""

_CUT: Final = "SELECT lsn FROM cdc_cut WHERE name = ?"
_STATE: Final = "SELECT state, reason FROM cdc_mirrored_table WHERE name = ? AND topic = ?"

_HASHES: Final = pa.schema([("key_hash", pa.int64()), ("value_hash", pa.int64())])
_HASHES_OF_MANY: Final = pa.schema([("topic", pa.string()), *_HASHES])
_ROWS: Final = pa.schema(
    [
        ("key_hash", pa.int64()),
        ("key", pa.string()),
        ("source_columns", pa.string()),
        ("chosen", pa.bool_()),
        ("copies", pa.int32()),
    ]
)


class ReadTransaction(Protocol):
    """A transaction that sees one commit of the replica until its end."""

    def execute(self, query: str, parameters: Sequence[str] = ()) -> Cursor:
        """Run a query; ``?`` stands for a parameter."""

    def has_replica(self) -> bool:
        """Returns whether a sink has made its tables here."""

    def rows(self, table: JobTable) -> Cursor:
        """Returns all rows of a table, with its columns in their order, as ``StoredRows`` takes them."""


class Cursor(Protocol):
    """The rows of a query, as a driver returns them."""

    def fetchone(self) -> Any:
        """Returns the next row; None at the end."""

    def fetchmany(self, size: int, /) -> Sequence[Any]:
        """Returns the next rows; none at the end."""


class ReplicaDriver(Protocol):
    """A database, as far as its driver differs from others."""

    @property
    def address(self) -> str:
        """The place of the replica, for people: without a password."""

    @property
    def remedy_without_sink(self) -> str:
        """What to do to compare after a repair, if the sink cannot run at the same time; else empty."""

    def exists(self) -> bool:
        """Returns whether there is a database yet."""

    def begin(self) -> AbstractContextManager[ReadTransaction]:
        """Read in one transaction to the end of the block.

        Raises:
            SourceUnreadable: the database cannot be opened, or an error of the driver was raised in the block.
        """


class DriverSide:
    """Implements ``ReplicaSide``.

    Args:
        spark: the session.
        job: the run.
        driver: the replica's database.
    """

    def __init__(self, spark: SparkSession, job: ReconcileJob, driver: ReplicaDriver) -> None:
        self._spark = spark
        self._job = job
        self._driver = driver

    def why_not(self, table: JobTable) -> str:
        """Returns why this table cannot be compared, before anything is held; empty if it can."""
        if not self._driver.exists():
            return f"{self._driver.address} does not exist yet; start the sink (cdc sink)"
        with self._driver.begin() as transaction:
            return _recorded(transaction, self._job, table, self._driver.address)[1]

    def wait_for(self, lsn: LSN, deadline: float) -> None:
        """Waits until the replica records this LSN or a later one."""
        while not self._has_reached(lsn):
            if remedy := self._driver.remedy_without_sink:
                raise JobError(f"the replica has not reached {lsn} yet", remedy=remedy)
            if time.monotonic() > deadline:
                raise not_reached(lsn, self._job.fence_timeout_s)
            time.sleep(_PAUSE_S)

    @contextmanager
    def hold(self, tables: Sequence[tuple[str, str]], folder: Path) -> Iterator[HeldByDriver]:
        """Holds a transaction to the end of the block, and removes then what Spark was given to read."""
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with self._driver.begin() as transaction:
                yield HeldByDriver(
                    self._spark, self._job, self._driver.address, transaction, tables, folder, time.monotonic()
                )
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _has_reached(self, lsn: LSN) -> bool:
        with self._driver.begin() as transaction:
            cut = transaction.execute(_CUT, (self._job.stream.name,)).fetchone()
        return cut is not None and cut[0] is not None and LSN.parse(cut[0]) >= lsn


@dataclass(frozen=True, slots=True)
class HeldByDriver:
    """Implements ``HeldReplica`` with a transaction.

    Args:
        spark: the session.
        job: the run.
        address: the replica's, for messages.
        transaction: reads the replica.
        tables: schema and name of the tables.
        folder: where to put what Spark reads.
        taken_at: the moment, in seconds of the monotonic clock.
    """

    spark: SparkSession
    job: ReconcileJob
    address: str
    transaction: ReadTransaction
    tables: Sequence[tuple[str, str]]
    folder: Path
    taken_at: float

    @property
    def state(self) -> str:
        """Empty: not all of these databases tell what a moment has."""
        return ""

    def recorded(self, table: JobTable) -> tuple[LSN, str]:
        """Returns the LSN at which the replica equals the source, or why this table cannot be compared."""
        return _recorded(self.transaction, self.job, table, self.address)

    def place(self, table: JobTable) -> ComparedPlace:
        """Returns the name of a table."""
        return replica_place(table)

    def rows(self, table: JobTable, where: str | None) -> TableRows:
        """Returns a reader of a table's rows."""
        assert where is None  # selection.refuse_unknown
        return DriverRows(self, table)

    def sizes(self, tables: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Returns about how many bytes each of these tables has."""
        counts = {each: self.transaction.execute(f"SELECT count(*) FROM {quoted(*each)}").fetchone() for each in tables}
        return {each: rows * _ROW_BYTES for each, (rows,) in counts.items()}

    def hashes_of_many(self, tables: Sequence[JobTable]) -> DataFrame:
        """Reads every row of several small tables."""
        found = ((each.topic, *stored.hashes(texts)) for each in tables for stored, texts in self.texts(each))
        return self.stored(found, _HASHES_OF_MANY, f"topic string, {HASHES_DDL}")

    def texts(self, table: JobTable) -> Iterator[tuple[StoredRows, Sequence[str | None]]]:
        """Reads all rows of a table.

        Raises:
            JobError: the transaction is open for longer than the run allows a snapshot to be held.
        """
        stored, cursor = StoredRows(table), self.transaction.rows(table)
        while rows := cursor.fetchmany(_AT_ONCE):
            if time.monotonic() - self.taken_at > self.job.max_snapshot_s:
                raise JobError(
                    f"the replica was read for {self.job.max_snapshot_s:.0f} s, the longest allowed",
                    remedy="allow more time: --max-snapshot-seconds",
                )
            for row in rows:
                yield stored, stored.texts(row)

    def stored(self, rows: Iterable[Sequence[Any]], schema: pa.Schema, ddl: str) -> DataFrame:
        """Hands rows to Spark as Parquet."""
        path = next(each for number in count() if not (each := self.folder / f"{number}.parquet").exists())
        with pq.ParquetWriter(path, schema) as writer:
            for batch in _batches(rows):
                columns = [pa.array(column, field.type) for column, field in zip(zip(*batch), schema)]  # noqa: B905
                writer.write_batch(pa.record_batch(columns, schema=schema))
        return self.spark.read.schema(ddl).parquet(str(path))


class DriverRows:
    """Implements ``TableRows``.

    Args:
        held: the replica at a moment.
        table: the table under its name in the replica.
    """

    def __init__(self, held: HeldByDriver, table: JobTable) -> None:
        self._held = held
        self._table = table

    def hashes(self, bucket: tuple[int, int]) -> DataFrame:
        """Reads every row as two numbers."""
        number, buckets = bucket
        found = (stored.hashes(texts) for stored, texts in self._held.texts(self._table))
        return self._held.stored((each for each in found if each[0] % buckets == number), _HASHES, HASHES_DDL)

    def rows(self, key_hashes: Sequence[int] | None) -> DataFrame:
        """Reads whole rows."""
        wanted = None if key_hashes is None else frozenset(key_hashes)
        return self._held.stored(self._whole(lambda each: wanted is None or each in wanted), _ROWS, ROWS_DDL)

    def _whole(self, is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, str, str, bool, int]]:
        for stored, texts in self._held.texts(self._table):
            key = stored.key(texts)
            if is_wanted(key_hash := hashed(key)):
                yield key_hash, key, json.dumps(texts), True, 1


def _recorded(transaction: ReadTransaction, job: ReconcileJob, table: JobTable, address: str) -> tuple[LSN, str]:
    if not transaction.has_replica():
        return LSN(0), f"{address} holds no replica yet; start the sink (cdc sink)"
    cut = transaction.execute(_CUT, (job.stream.name,)).fetchone()
    state = transaction.execute(_STATE, (job.stream.name, table.topic)).fetchone()
    return recorded_lsn(cut, state)


def _batches(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    batch: list[Sequence[Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
