"""Reads the rows of given keys as one snapshot sees them, beside the stream: what a repair publishes.

First the keys' texts are cast to the columns' types on their own. So a text that does not fit its type is not taken for
a key without a row. The cast's output is the key as the stream would write it. Then one query looks up all rows, in the
same transaction. The order of steps is that of ``chunk``: lock, snapshot with H, rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from psycopg import errors as sqlstate
from psycopg import pq, sql

from cdc.base.errors import SourceRefused
from cdc.bridge.capture.reading import Moment, describe, moment_of, published_part
from cdc.bridge.capture.reread import text_array
from cdc.bridge.capture.standby import Sight
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.keyed_table import KeyedTable, keyed_table
from cdc.bridge.source.sqlstates import result_error, sqlstate_of
from cdc.bridge.source.table import TableInfo, quoted, select_grant
from cdc.contract.change import Column, Relation
from cdc.contract.pgtypes import sql_type
from cdc.contract.snapshot import Snapshot

KeyTexts: TypeAlias = tuple[bytes, ...]
"""One text per key column, in the order of ``TableInfo.key``."""


MAX_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of rows that are read at once. What does not fit is asked for again."""

_FIRST_ROWS: Final = 8


class KeyAnswer(NamedTuple):
    """What the table has for one key.

    Attributes:
        key: the key as the server writes it; None when it is not a key of this table.
        row: its values in the relation's order of columns; None when the publication has no such row.
        is_read: False when the row was left out, because the rows before it reached the limit.
    """

    key: KeyTexts | None
    row: tuple[bytes | None, ...] | None
    is_read: bool = True


class KeyRows(NamedTuple):
    """All answers of one snapshot, in the order of the questions; ``key`` names the key columns."""

    moment: Moment
    relation: Relation
    key: tuple[str, ...]
    answers: tuple[KeyAnswer, ...]


def read_keys(
    conn: psycopg.Connection[Any],
    table: TableInfo,
    publication: str,
    texts: Callable[[Sequence[Column]], Sequence[KeyTexts | None]],
    suffices: Callable[[Snapshot], bool],
    sight: Sight | None,
) -> KeyRows | None:
    """Look up the rows of some keys.

    Args:
        conn: a connection from ``open_chunk_reader`` that nobody else uses meanwhile.
        table: the table: an ordinary one, or the root of a partitioned one.
        publication: the publication whose row filter and column list apply.
        texts: takes the key's columns, and returns the keys; None for what cannot be a key.
        suffices: whether a snapshot sees enough; if it does not, nothing is read.
        sight: on a standby, what it certainly shows; it has replayed that far.

    Returns:
        None when the snapshot does not suffice, although a later one may.

    Raises:
        SourceUnavailable: the connection broke.
        SourceRefused: the table is gone, or our role may not read it.
    """
    name = table.quoted_name
    with source_errors(f"reading {table.qualified_name}", remedy=_grant(conn, table)):
        try:
            conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            conn.execute(f"LOCK TABLE {_only(table)}{name} IN ACCESS SHARE MODE".encode())
            moment = moment_of(conn, name, sight)
            if not suffices(moment.snapshot):
                return None
            published = published_part(conn, table, publication)
            relation = describe(conn, table, published.columns)
            if not set(table.key) <= {column.name for column in relation.columns}:
                raise SourceRefused(
                    f"table {table.qualified_name} no longer has the key {', '.join(table.key)}",
                    remedy="run `cdc reconcile` again: it will use today's key",
                )
            answers = _answers(conn, table, relation, published.row_filter, texts)
            return KeyRows(moment, relation, table.key, answers)
        except (sqlstate.UndefinedTable, sqlstate.InvalidSchemaName) as error:
            raise SourceRefused(
                f"table {table.qualified_name} is gone", remedy="take it out of source.tables if it is gone for good"
            ) from error
        finally:
            if not conn.closed and conn.pgconn.status == pq.ConnStatus.OK:
                conn.execute("ROLLBACK")


def _grant(conn: psycopg.Connection[Any], table: TableInfo) -> str:
    return select_grant(table.namespace, table.quoted_name, quoted(conn.info.user))


def _answers(
    conn: psycopg.Connection[Any],
    table: TableInfo,
    relation: Relation,
    row_filter: str | None,
    texts: Callable[[Sequence[Column]], Sequence[KeyTexts | None]],
) -> tuple[KeyAnswer, ...]:
    by_name = {column.name: column for column in relation.columns}
    columns = [by_name[name] for name in table.key]
    asked = texts(columns)
    keys: list[KeyTexts | None] = [None] * len(asked)
    places = [place for place, each in enumerate(asked) if each is not None]
    for place, key in zip(places, _cast(conn, columns, [each for each in asked if each is not None]), strict=True):
        keys[place] = key
    rows: dict[int, tuple[bytes | None, ...] | None] = {place: None for place, key in enumerate(keys) if key is None}
    keyed = keyed_table(conn, table.quoted_name, table.key)
    rest = [(place, key) for place, key in enumerate(keys) if key is not None]
    size, count = 0, _FIRST_ROWS
    while rest and size < MAX_BYTES:
        slice_, rest = rest[:count], rest[count:]
        found = _rows(conn, table, keyed, relation, row_filter, columns, [key for _, key in slice_])
        rows.update(zip((place for place, _ in slice_), found, strict=True))
        read = sum(len(cell) for row in found for cell in row or () if cell is not None)
        size += read
        # As many rows as fit into the rest, if they are as large as the last ones
        count = max(1, min(2 * count, (MAX_BYTES - size) * len(slice_) // max(read, 1)))
    return tuple(KeyAnswer(key, rows.get(place), place in rows) for place, key in enumerate(keys))


def _cast(conn: psycopg.Connection[Any], columns: Sequence[Column], keys: Sequence[KeyTexts]) -> list[KeyTexts | None]:
    """Returns the keys as the server writes them; None for those unfit for their type, found by halving the query."""
    if not keys:
        return []
    conn.execute("SAVEPOINT cast_keys")
    result = _run(conn, _keys_query(columns), columns, keys)
    if result.status == pq.ExecStatus.TUPLES_OK:
        conn.execute("RELEASE cast_keys")
        cast: list[KeyTexts | None] = [None] * len(keys)
        for row in range(result.ntuples):
            ordinal, *cells = (result.get_value(row, cell) for cell in range(len(columns) + 1))
            texts = tuple([cell for cell in cells if cell is not None])
            cast[int(ordinal or b"") - 1] = texts if len(texts) == len(columns) else None
        return cast
    if not (sqlstate_of(result) or "").startswith("22"):  # data exception
        raise result_error("casting keys", result)
    conn.execute("ROLLBACK TO cast_keys")
    if len(keys) == 1:
        return [None]
    half = len(keys) // 2
    return _cast(conn, columns, keys[:half]) + _cast(conn, columns, keys[half:])


def _rows(
    conn: psycopg.Connection[Any],
    table: TableInfo,
    keyed: KeyedTable,
    relation: Relation,
    row_filter: str | None,
    columns: Sequence[Column],
    keys: Sequence[KeyTexts],
) -> list[tuple[bytes | None, ...] | None]:
    """Returns the row of each key, if there is one."""
    # The row filter names columns without a table, so it goes where there are no other names
    rows = sql.SQL("SELECT {} FROM {}{}").format(
        sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns),
        keyed.source,
        sql.SQL(f" WHERE ({row_filter})" if row_filter else ""),  # the server wrote it
    )
    query = sql.SQL("SELECT k.o, {} FROM ({}) k JOIN ({}) t ON {}").format(
        sql.SQL(", ").join(sql.Identifier("t", column.name) for column in relation.columns),
        _keys_query(columns),
        rows,
        keyed.equal(
            [sql.Identifier("t", column.name) for column in columns],
            [sql.Identifier("k", f"c{i}") for i in range(len(columns))],
        ),
    )
    result = _run(conn, query, columns, keys)
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise result_error(
            f"reading {table.qualified_name}", result, remedy=_grant(conn, table), role=quoted(conn.info.user)
        )
    found: list[tuple[bytes | None, ...] | None] = [None] * len(keys)
    for row in range(result.ntuples):
        cells = [result.get_value(row, cell) for cell in range(len(relation.columns) + 1)]
        found[int(cells[0] or b"") - 1] = tuple(cells[1:])
    return found


def _keys_query(columns: Sequence[Column]) -> sql.Composed:
    """Returns a query for the ordinal ``o`` and the typed keys ``c0``, ``c1`` …, from an array of texts per column."""
    names = [sql.Identifier(f"v{i}") for i in range(len(columns))]
    casts = [
        sql.SQL("{}::{} AS {}").format(name, sql.SQL(sql_type(column)), sql.Identifier(f"c{i}"))
        for i, (name, column) in enumerate(zip(names, columns, strict=True))
    ]
    arrays = [sql.SQL(f"${i + 1}::text[]") for i in range(len(columns))]
    return sql.SQL("SELECT o, {} FROM unnest({}) WITH ORDINALITY AS v({}, o)").format(
        *(sql.SQL(", ").join(each) for each in (casts, arrays, names))
    )


def _run(
    conn: psycopg.Connection[Any], query: sql.Composed, columns: Sequence[Column], keys: Sequence[KeyTexts]
) -> pq.abc.PGresult:
    parameters = [text_array([key[i] for key in keys]) for i in range(len(columns))]
    return conn.pgconn.exec_params(query.as_bytes(conn), parameters, result_format=pq.Format.TEXT)


def _only(table: TableInfo) -> str:
    """Returns ONLY for an ordinary table: rows of tables that inherit from it are not its own."""
    return "ONLY " if table.kind == "r" else ""
