"""Re-reads columns that pgoutput left out because an UPDATE did not touch them (unchanged TOAST), by key.

One query per table and batch. ``xmin`` comes along: equal to the transaction's xid means that the row version is the
very one the stream describes, so the value is exact; otherwise it may be newer than the change at hand.
A commit is in the WAL before it is visible (longest while a synchronous standby is awaited), so a re-read can come too
early and find the row before the change, or no row. It therefore takes its snapshot along, and the caller repeats it
until every transaction that it completes rows of is visible in that.
Values come through the output functions in text form, as in the stream, not through ``::text`` casts (they differ for
bool, char(n) and "char").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import pq, sql

from cdc.capture.connect import source_errors
from cdc.capture.table import quoted
from cdc.change import Relation
from cdc.errors import SourceRefused, SourceUnavailable
from cdc.pgtypes import sql_type
from cdc.snapshot import Snapshot


def current_snapshot(connection: psycopg.Connection[Any]) -> Snapshot:
    """What this connection sees now.

    Raises:
        SourceUnavailable: the connection broke.
    """
    with source_errors("reading the snapshot"):
        row = connection.execute("SELECT pg_catalog.pg_current_snapshot()::text").fetchone()
    assert row is not None
    return Snapshot.parse(row[0])


class RereadRow(NamedTuple):
    """The current row of one key: its columns' values as asked for, and the low 32 bits of the xid that wrote it."""

    xmin: int
    values: tuple[bytes | None, ...]


def reread(
    connection: psycopg.Connection,
    relation: Relation,
    key_columns: Sequence[str],
    columns: Sequence[str],
    keys: Sequence[tuple[bytes, ...]],
) -> tuple[Snapshot, dict[tuple[bytes, ...], RereadRow]]:
    """Read ``columns`` of the rows with these keys as they are now.

    Args:
        connection: an ordinary connection with the pinned settings.
        relation: the table; a partitioned root reads its leaves.
        key_columns: names of the key's columns.
        columns: names of the columns to read.
        keys: text-form key values, one tuple per row.

    Returns:
        The snapshot that was read in, and rows by key; a key without a row is absent.

    Raises:
        SourceUnavailable: the connection broke.
        SourceRefused: the table is gone, altered or not readable.
    """
    query = _query(relation, key_columns, columns).as_string(connection).encode()
    parameters = [text_array([key[i] for key in keys]) for i in range(len(key_columns))]
    result = connection.pgconn.exec_params(query, parameters, result_format=pq.Format.TEXT)
    if result.status != pq.ExecStatus.TUPLES_OK:
        message = result.get_error_message()
        if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
            raise SourceUnavailable(f"re-reading {relation.qualified_name} failed: {message}")
        table, role = quoted(relation.namespace, relation.name), quoted(connection.info.user)
        raise SourceRefused(
            f"cannot re-read unchanged TOAST columns of {relation.qualified_name}: {message}",
            remedy=f"ALTER ROLE {role} BYPASSRLS;"
            if "row-level security" in message
            else f"GRANT SELECT ON {table} TO {role};  -- or ALTER TABLE {table} REPLICA IDENTITY FULL;",
        )
    rows: dict[tuple[bytes, ...], RereadRow] = {}
    for row in range(result.ntuples):
        ordinal, _, xmin, *values = (result.get_value(row, column) for column in range(len(columns) + 3))
        if ordinal is not None and xmin is not None:
            rows[keys[int(ordinal) - 1]] = RereadRow(int(xmin), tuple(values))
    return Snapshot.parse((result.get_value(0, 1) or b"").decode()), rows


def _query(relation: Relation, key_columns: Sequence[str], columns: Sequence[str]) -> sql.Composed:
    """Join the table with the keys; each key column is compared in its own type, so the index is used."""
    table = sql.Identifier(relation.namespace, relation.name)
    arrays = sql.SQL(", ").join(sql.SQL("${}::text[]").format(sql.SQL(str(i + 1))) for i in range(len(key_columns)))
    names = [sql.Identifier(f"k{i}") for i in range(len(key_columns))]
    types = {column.name: sql_type(column) for column in relation.columns}
    conditions = sql.SQL(" AND ").join(
        sql.SQL("t.{} = k.{}::{}").format(sql.Identifier(column), name, sql.SQL(types[column]))
        for column, name in zip(key_columns, names, strict=True)
    )
    return sql.SQL(
        "SELECT k.o, pg_catalog.pg_current_snapshot(), t.xmin, {} "
        "FROM unnest({}) WITH ORDINALITY AS k({}, o) LEFT JOIN {} AS t ON {}"
    ).format(
        sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(column)) for column in columns),
        arrays,
        sql.SQL(", ").join(names),
        table,
        conditions,
    )


def text_array(values: Sequence[bytes]) -> bytes:
    """These texts as a parameter of type ``text[]``."""
    quoted = (b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"' for value in values)
    return b"{" + b",".join(quoted) + b"}"
