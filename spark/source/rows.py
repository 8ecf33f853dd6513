"""Reads rows of a database under a held snapshot as a DataFrame; each task reads a range of blocks of one heap."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from cdc.contract.jobspec.deployment import JobTable, PostgresSettings
from cdc.spark.source.held_snapshot import PINNED, HeldSnapshot, reading
from cdc.spark.source.sql import (
    MASK_KEYS,
    columns_json,
    condition,
    digest,
    hashed,
    key_json,
    literal,
    pads,
    quoted,
    value_json,
)

HASHES_DDL: Final = "key_hash bigint, value_hash bigint"
ROWS_DDL: Final = "key_hash bigint, key string, source_columns string, chosen boolean, copies int"
EXCLUDED: Final = -1
"""A row that ``--where`` leaves out has ``EXCLUDED - value_hash`` in place of its ``value_hash``: a negative number."""

_FETCH_ROWS: Final = 10_000
"""How many rows to fetch at once. With 0 the driver would silently run each query outside of the snapshot."""

_SIZES: Final = """
SELECT n.nspname, c.relname, pg_catalog.pg_table_size(c.oid)
FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) AS wanted (namespace, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.namespace
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
WHERE c.relkind = 'r'
"""
_BLOCK_BYTES: Final = 8_192
_BLOCKS_A_TASK: Final = 16_384
"""How many blocks (128 MiB) a task reads: it takes a few seconds, so a lost worker costs only seconds."""


class TableRows(Protocol):
    """Reads the rows of one table of a source or replica, at a moment that is held."""

    def hashes(self, bucket: tuple[int, int]) -> DataFrame:
        """Reads every row as two numbers.

        Args:
            bucket: the number of a key bucket and how many there are; rows of other buckets are left out.

        Returns:
            ``key_hash``, ``value_hash`` bigint: 60 bits each, of the record key and of the value (see ``EXCLUDED``).
        """

    def rows(self, key_hashes: Sequence[int] | None) -> DataFrame:
        """Reads whole rows.

        Args:
            key_hashes: the keys whose rows to read; None for all.

        Returns:
            ``key_hash`` bigint, ``key`` string (the record key), ``source_columns`` string (JSON array of texts),
            ``chosen`` boolean (the row is to be compared), ``copies`` int (how many rows have this key; all but one are
            left out, and where the database has a primary key there is one).
        """


class SourceRows:
    """Reads a table's rows as the snapshot sees them.

    Args:
        spark: the session.
        database: the database.
        held: the snapshot; it must stay held until the last action on a DataFrame is done.
        table: a table of the source, or a replica under its own name.
        where: SQL condition; rows for which it does not hold are returned, but marked as not to be compared.
        connections: how many tasks read at once; each heap is divided into at least as many ranges, if it is big
            enough.
    """

    def __init__(
        self,
        spark: SparkSession,
        database: PostgresSettings,
        held: HeldSnapshot,
        table: JobTable,
        where: str | None,
        connections: int,
    ) -> None:
        self._spark = spark
        self._database = database
        self._held = held
        self._table = table
        self._filter = condition(table.row_filter or "true")
        self._chosen = "true" if where is None else f"coalesce({condition(where)}, false)"
        self._connections = connections

    def hashes(self, bucket: tuple[int, int]) -> DataFrame:
        """Reads every row as two numbers."""
        number, count = bucket
        wanted = f" WHERE {hashed('k')} % {count} = {number}" if count > 1 else ""
        return self._read(lambda heap: self._numbers(heap) + wanted, HASHES_DDL)

    def rows(self, key_hashes: Sequence[int] | None) -> DataFrame:
        """Reads whole rows."""
        key = key_json(self._table)
        whole = f"{key} AS key, {columns_json(self._table.columns)} AS source_columns, {self._chosen} AS chosen"
        wanted = "" if key_hashes is None else f" AND {hashed(digest(key))} IN ({listed(key_hashes)})"
        shown = f"block, {hashed(digest('key'))} AS key_hash, key, source_columns, chosen, 1 AS copies"
        return self._read(lambda heap: f"SELECT {shown} FROM ({self._select(whole, heap)}{wanted}) d", ROWS_DDL)

    def _numbers(self, heap: tuple[str, str]) -> str:
        key, value = key_json(self._table), value_json(self._table.columns)
        digests = f"{digest(key)} AS k, {digest(value)} AS v, {self._chosen} AS chosen"
        value = f"CASE WHEN chosen THEN {hashed('v')} ELSE {EXCLUDED} - {hashed('v')} END"
        numbers = f"{hashed('k')} AS key_hash, {value} AS value_hash"
        return f"SELECT block, {numbers} FROM ({self._select(digests, heap)}) d"

    def _select(self, expressions: str, heap: tuple[str, str]) -> str:
        # ONLY, because a table that others inherit from would return their rows as well.
        return f"SELECT ctid AS block, {expressions} FROM ONLY {quoted(*heap)} WHERE {self._filter}"

    def _read(self, query: Callable[[tuple[str, str]], str], schema: str) -> DataFrame:
        if not self._held.heaps:  # a partitioned table without partitions
            return self._spark.createDataFrame([], schema)
        frames = [self._query(query(heap), self._block_ranges(heap)).drop("block") for heap in self._held.heaps]
        return functools.reduce(DataFrame.unionByName, frames).coalesce(self._connections)

    def _block_ranges(self, heap: tuple[str, str]) -> list[str]:
        """Returns conditions that divide a heap; the last range is open, for blocks added after they were counted."""
        with reading(f"measuring {'.'.join(heap)}"):
            row = self._held.connection.execute(
                "SELECT pg_catalog.pg_relation_size(%s::pg_catalog.regclass)", (quoted(*heap),)
            ).fetchone()
        assert row is not None
        blocks = row[0] // _BLOCK_BYTES
        count = max(1, min(blocks, max(self._connections, blocks // _BLOCKS_A_TASK)))
        edges = [blocks * number // count for number in range(count)]
        # The guard is here, not in the query: the driver first asks for the query's columns, outside of any snapshot.
        return [
            f"{self._held.guard()} AND block >= '({start},0)'::tid"
            + ("" if end is None else f" AND block < '({end},0)'::tid")
            for start, end in zip(edges, [*edges[1:], None], strict=True)
        ]

    def _query(self, sql: str, predicates: list[str]) -> DataFrame:
        """Runs the query as one task for each condition, all under the snapshot."""
        url, properties = _url(self._database), _properties(self._database, self._held, self._table)
        return self._spark.read.jdbc(url, f"({sql}) q", predicates=predicates, properties=properties)


def hashes_of_many(
    spark: SparkSession, database: PostgresSettings, held: HeldSnapshot, tables: Sequence[JobTable], connections: int
) -> DataFrame:
    """Reads every row of several small tables as its topic and two numbers, with one query per connection.

    Args:
        spark, database, held, connections: as for ``SourceRows``.
        tables: plain tables, all of them in ``held.heaps``.

    Returns:
        ``topic`` string, ``key_hash``, ``value_hash`` bigint.
    """
    each_alone = [SourceRows(spark, database, held, table, None, connections) for table in tables]
    queries = [
        f"SELECT {number} AS number, {literal(table.topic)}::text AS topic, key_hash, value_hash"
        f" FROM ({rows._numbers((table.namespace, table.name))}) t"
        for number, (table, rows) in enumerate(zip(tables, each_alone, strict=True))
    ]
    tasks = min(connections, len(tables))
    # The number is a constant in each part of the UNION, so the server skips the parts whose condition is false.
    predicates = [f"{held.guard()} AND number % {tasks} = {task}" for task in range(tasks)]
    # Whichever has the keys of masks has those of all: a deployment has one salt
    asking = next((rows for rows, table in zip(each_alone, tables, strict=True) if table.salt), each_alone[0])
    return asking._query(" UNION ALL ".join(queries), predicates).select("topic", "key_hash", "value_hash")


def sizes_of(held: HeldSnapshot) -> dict[tuple[str, str], int]:
    """Returns the size of each heap that is a plain table, in bytes, including values stored out of line."""
    with reading("measuring the tables"):
        namespaces, names = [each for each, _ in held.heaps], [each for _, each in held.heaps]
        # Only tables that we have locked: pg_table_size waits for anybody else's exclusive lock.
        rows = held.connection.execute(_SIZES, (namespaces, names)).fetchall()
    return {(namespace, name): size for namespace, name, size in rows}


def _url(database: PostgresSettings) -> str:
    host = f"[{database.host}]" if ":" in database.host else database.host
    return f"jdbc:postgresql://{host}:{database.port}/{quote(database.database, safe='')}"


def _properties(database: PostgresSettings, held: HeldSnapshot, table: JobTable) -> dict[str, str]:
    pinned = "; ".join(f"SET {name} = '{value}'" for name, value in PINNED.items())
    given = {
        "driver": "org.postgresql.Driver",
        "user": database.user,
        "password": database.password.get_secret_value() if database.password else None,
        "sslmode": database.sslmode,
        "sslrootcert": database.sslrootcert,
        "ApplicationName": "cdc reconcile",
        # At the connection's start, which no setting of the server logs, unlike statements
        "options": None if table.salt is None else f"-c {MASK_KEYS}={pads(table.salt.get_secret_value())}",
        "fetchsize": str(_FETCH_ROWS),
        # The driver sets the JVM's time zone when it connects, so our settings have to come after the login.
        "sessionInitStatement": f"{held.init_statement()}; {pinned}",
    }
    return {name: value for name, value in given.items() if value is not None}


def listed(key_hashes: Sequence[int]) -> str:
    """Lists key hashes for ``IN``; NULL stands for an empty list, which SQL does not allow."""
    return ",".join(map(str, key_hashes)) or "NULL"
