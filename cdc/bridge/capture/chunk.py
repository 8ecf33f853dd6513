"""Reads a chunk of a backfill: a range of blocks of one heap, in one snapshot, beside the stream.

Block ranges divide a table even though its rows move. A row that moves is an UPDATE, hence in the stream, which was
running before the first chunk. Only a rewrite moves rows without a word, and it changes the filenode. No table is
written, so a standby can be read as well.

The order of steps in a chunk's transaction matters. First comes the lock: no rewrite from here on. Then comes the
snapshot, and with it H, the end of the WAL at that moment: everything that the snapshot sees committed before H. The
rows come last. H may be asked for before the rows, because it belongs to the snapshot.
TID range scans: https://www.postgresql.org/docs/14/release-14.html
"""

from __future__ import annotations

import contextlib
import json
import select
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as sqlstate
from psycopg import pq

from cdc.base.errors import CdcError, SourceAltered, SourceRefused, SourceUnavailable
from cdc.base.lsn import LSN
from cdc.base.table_names import qualified
from cdc.bridge.capture.reading import describe, moment_of, published_part
from cdc.bridge.capture.standby import Sight
from cdc.bridge.source.condition import OF_A_CONDITION, check_condition, in_parentheses
from cdc.bridge.source.connect import connect, source_errors
from cdc.bridge.source.sqlstates import SERVER_AWAY, message_of, result_error, sqlstate_of
from cdc.bridge.source.table import TableInfo, quoted, select_grant
from cdc.bridge.source.wal_end import BLOCK_BYTES
from cdc.contract.change import Relation
from cdc.contract.snapshot import Snapshot


class Heap(NamedTuple):
    """A table or partition that holds rows, as it is now. If it has no filenode, it is gone."""

    namespace: str
    name: str
    filenode: int
    blocks: int


class Chunk(NamedTuple):
    """Blocks ``start`` to ``end`` (not included) of a heap; ``end`` is None for all that follow.

    Attributes:
        table: the table that the rows belong to: the root of a partitioned table, or the heap itself.
        where: an SQL condition; None for all rows.
    """

    table: TableInfo
    namespace: str
    name: str
    start: int
    end: int | None
    where: str | None


class ChunkView(NamedTuple):
    """The transaction that a chunk is read in.

    Attributes:
        snapshot: the snapshot whose changes the rows have; on a standby they may have more.
        snapshot_text: the snapshot as ``pg_current_snapshot()`` prints it.
        lsn: H: everything that the snapshot sees committed before it.
        filenode: the heap's filenode.
        relation: the published columns, as the stream would describe them.
    """

    snapshot: Snapshot
    snapshot_text: str
    lsn: LSN
    filenode: int
    relation: Relation


def open_chunk_reader(
    connection: Mapping[str, str], *, application_name: str, lock_timeout_s: int = 0
) -> psycopg.Connection[Any]:
    """Open a connection for reading chunks, to the primary or a standby; the arguments are those of ``connect``."""
    conn = connect(connection, application_name=application_name, lock_timeout_s=lock_timeout_s)
    with source_errors("preparing to read a table"):
        conn.execute("SET default_transaction_read_only = on")
    return conn


class ChunkedTable(NamedTuple):
    """A table as a whole, before or after its chunks are read.

    Attributes:
        heaps: the heaps that hold its rows now; none if the table is gone, or is partitioned without partitions.
        estimated_rows: about how many rows there are to read.
        relation: the table as the stream would describe it; None if it is gone.
        snapshot_text: ``pg_current_snapshot()``.
    """

    heaps: tuple[Heap, ...]
    estimated_rows: int
    relation: Relation | None
    snapshot_text: str


def view_table(
    conn: psycopg.Connection[Any], table: TableInfo, publication: str, where: str | None, sight: Sight | None
) -> ChunkedTable:
    """Look at a table as a whole. Waits while somebody has it locked. ``sight`` is that of a chunk.

    Raises:
        ConfigError: ``where`` is not a condition on the table.
        SourceRefused: our role may not read the table.
        SourceUnavailable: the connection broke.
    """
    with source_errors(f"looking at {table.qualified_name}"):
        snapshot_text = sight.snapshot_text if sight is not None else _snapshot_text(conn)
        try:
            relation = describe(conn, table, published_part(conn, table, publication).columns)
            if where is not None:
                check_condition(conn, table.namespace, table.name, where)
            heaps = tuple(Heap(*each) for each in conn.execute(_HEAPS, (BLOCK_BYTES, table.quoted_name)).fetchall())
            return ChunkedTable(heaps, _estimate_rows(conn, table, where), relation, snapshot_text)
        except (sqlstate.UndefinedTable, sqlstate.InvalidSchemaName, SourceAltered):
            return ChunkedTable((), 0, None, snapshot_text)


def _snapshot_text(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute("SELECT pg_catalog.pg_current_snapshot()::text").fetchone()
    assert row is not None
    return str(row[0])


def flush_wal(conn: psycopg.Connection[Any]) -> None:
    """Have the server write out WAL that it might otherwise keep to itself for a quarter of a minute.

    H may lie after records of no transaction, for instance of a page that a reader pruned. On an idle server nobody
    flushes such records, and what is not flushed is not streamed. A logical message that nobody listens to flushes
    them. Without the right to emit one, or on a standby, we have to wait for the server's background writer.
    """
    version, emit = conn.info.server_version, "pg_catalog.pg_logical_emit_message"
    with (
        contextlib.suppress(SourceRefused),
        source_errors("flushing WAL"),
        conn.transaction(),
    ):
        # do not wait for a synchronous standby: it may be down
        conn.execute("SET LOCAL synchronous_commit = local")
        flush = f"{emit}(false, 'cdc', '', true)" if version >= 170000 else f"{emit}(true, 'cdc', '')"
        conn.execute(f"SELECT {flush} WHERE NOT pg_catalog.pg_is_in_recovery()".encode())


class ChunkReader:
    """Reads one chunk, from its snapshot to its last row. The transaction ends with the ``with`` block.

    Args:
        conn: a connection from ``open_chunk_reader`` that nobody else uses meanwhile.
        chunk: what to read.
        publication: the publication whose row filter and column list apply.
    """

    def __init__(self, conn: psycopg.Connection[Any], chunk: Chunk, publication: str) -> None:
        self._conn = conn
        self._chunk = chunk
        self._publication = publication
        self._poll = select.poll()
        self._poll.register(conn.pgconn.socket, select.POLLIN)
        self._reading = False

    @property
    def is_at_end(self) -> bool:
        """Whether the last row was read."""
        return not self._reading

    def __enter__(self) -> ChunkReader:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()

    def begin(self, sight: Sight | None) -> ChunkView | None:
        """Take the snapshot; None when the heap is gone. Call it again for a newer snapshot.

        Args:
            sight: on a standby, what it certainly shows; it has replayed that far.

        Raises:
            SourceUnavailable: the connection broke.
            SourceRefused: our role may not read the table.
        """
        self.end()
        chunk, table = self._chunk, self._chunk.table
        with source_errors(f"reading {qualified(chunk.namespace, chunk.name)}", remedy=self._grant):
            try:
                self._conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self._conn.execute(
                    f"LOCK TABLE ONLY {quoted(chunk.namespace, chunk.name)} IN ACCESS SHARE MODE".encode()
                )
                moment = moment_of(self._conn, quoted(chunk.namespace, chunk.name), sight)
                published = published_part(self._conn, table, self._publication)
                relation = describe(self._conn, table, published.columns)
            except (sqlstate.UndefinedTable, sqlstate.InvalidSchemaName):
                self.end()
                return None
        self._filter = published.row_filter
        self._columns = [column.name for column in relation.columns]
        return ChunkView(moment.snapshot, moment.snapshot_text, moment.lsn, moment.filenode or 0, relation)

    def copy(self) -> None:
        """Start to copy the rows.

        Raises:
            SourceRefused: the server refuses the query, for instance because of a wrong ``where``.
        """
        chunk = self._chunk
        conditions = [f"ctid >= '({chunk.start},0)'::pg_catalog.tid"]
        if chunk.end is not None:
            conditions.append(f"ctid < '({chunk.end},0)'::pg_catalog.tid")
        conditions += [in_parentheses(each) for each in (self._filter, chunk.where) if each]
        columns = ", ".join(map(quoted, self._columns))
        query = (
            f"COPY (SELECT {columns} FROM ONLY {quoted(chunk.namespace, chunk.name)}"
            f" WHERE {' AND '.join(conditions)}) TO STDOUT"
        )
        result = self._conn.pgconn.exec_params(query.encode(), None)  # the extended protocol takes one statement only
        if result.status != pq.ExecStatus.COPY_OUT:
            raise self._failed(result)
        self._reading = True

    def rows(self, max_rows: int, max_bytes: int) -> list[bytes]:
        """Returns the next rows as lines of COPY's text format, after ``copy``; fewer than asked for only at the end.

        Raises:
            SourceUnavailable: the connection broke, or a standby had to cancel the reading.
        """
        lines: list[bytes] = []
        total = 0
        pgconn, append = self._conn.pgconn, lines.append
        get_copy_data = pgconn.get_copy_data
        try:
            while self._reading and len(lines) < max_rows and total < max_bytes:
                size, data = get_copy_data(1)
                if size > 0:
                    append(bytes(data))
                    total += size
                elif size == 0:
                    self._wait_for_input()
                else:
                    self._reading = False
                    result = self._result()
                    if result is not None and result.status != pq.ExecStatus.COMMAND_OK:
                        raise self._failed(result)
                    while self._result() is not None:  # libpq takes no other command before that
                        pass
        except psycopg.Error as error:
            raise SourceUnavailable(
                f"PostgreSQL went away while a table was read: {error}", remedy=SERVER_AWAY
            ) from error
        return lines

    def end(self) -> None:
        """End the transaction in whatever state it is. A reading that is under way costs the connection."""
        pgconn = self._conn.pgconn
        if self._reading or pgconn.status != pq.ConnStatus.OK:
            self._conn.close()
        elif pgconn.transaction_status != pq.TransactionStatus.IDLE:
            with source_errors("reading a table"):
                self._conn.execute("ROLLBACK")

    def _result(self) -> pq.abc.PGresult | None:
        """Does what libpq's ``get_result`` does, which would block all threads of this process while it waits."""
        while self._conn.pgconn.is_busy():
            self._wait_for_input()
        return self._conn.pgconn.get_result()

    def _wait_for_input(self) -> None:
        self._poll.poll(1_000)
        self._conn.pgconn.consume_input()

    @property
    def _grant(self) -> str:
        chunk = self._chunk
        return select_grant(chunk.namespace, quoted(chunk.namespace, chunk.name), quoted(self._conn.info.user))

    def _failed(self, result: pq.abc.PGresult) -> CdcError:
        name, role = qualified(self._chunk.namespace, self._chunk.name), quoted(self._conn.info.user)
        if self._chunk.where and (sqlstate_of(result) or "").startswith(OF_A_CONDITION):
            return SourceRefused(
                f"PostgreSQL refuses to read {name} with this condition: {message_of(result)}",
                remedy="correct --where",
            )
        return result_error(f"reading {name}", result, remedy=self._grant, role=role)


def _estimate_rows(conn: psycopg.Connection[Any], table: TableInfo, where: str | None) -> int:
    """Returns the rows that the planner expects. It looks at the files' sizes, not only at what ANALYZE counted."""
    source = table.quoted_name if table.kind == "p" else f"ONLY {table.quoted_name}"
    query = f"EXPLAIN (FORMAT JSON) SELECT FROM {source}" + (f" WHERE {in_parentheses(where)}" if where else "")
    result = conn.pgconn.exec_params(query.encode(), None)
    if result.status != pq.ExecStatus.TUPLES_OK:
        grant = select_grant(table.namespace, table.quoted_name, quoted(conn.info.user))
        raise result_error(f"planning to read {table.qualified_name}", result, remedy=grant)
    return int(json.loads(result.get_value(0, 0) or b"")[0]["Plan"]["Plan Rows"])


_HEAPS: Final = """
SELECT n.nspname::text, c.relname::text, pg_catalog.pg_relation_filenode(c.oid)::bigint,
  (pg_catalog.pg_relation_size(c.oid) / %s)::bigint
FROM (SELECT %s::pg_catalog.regclass AS oid) root
CROSS JOIN LATERAL (
  SELECT relid FROM pg_catalog.pg_partition_tree(root.oid) WHERE isleaf UNION SELECT root.oid) leaf
JOIN pg_catalog.pg_class c ON c.oid = leaf.relid AND c.relkind = 'r'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""
