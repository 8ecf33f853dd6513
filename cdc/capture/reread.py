"""Re-reads columns that pgoutput left out because an UPDATE did not touch them (unchanged TOAST), by key.

One query per table and batch. ``xmin`` comes along: equal to the transaction's xid means that the row version is the
very one the stream describes, so the value is exact; otherwise it may be newer than the change at hand.
Values come through the output functions in text form, as in the stream, not through ``::text`` casts (they differ for
bool, char(n) and "char").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import psycopg
from psycopg import pq, sql

from cdc.change import Relation
from cdc.errors import SourceRefused, SourceUnavailable
from cdc.pgtypes import sql_type


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
) -> dict[tuple[bytes, ...], RereadRow]:
    """Read ``columns`` of the rows with these keys as they are now.

    Args:
        connection: an ordinary connection with the pinned settings.
        relation: the table; a partitioned root reads its leaves.
        key_columns: names of the key's columns.
        columns: names of the columns to read.
        keys: text-form key values, one tuple per row.

    Returns:
        Rows by key; a key without a row is absent.

    Raises:
        SourceUnavailable: the connection broke.
        SourceRefused: the table is gone, altered or not readable.
    """
    query = _query(relation, key_columns, columns).as_string(connection).encode()
    parameters = [_array_literal([key[i] for key in keys]) for i in range(len(key_columns))]
    result = connection.pgconn.exec_params(query, parameters, result_format=pq.Format.TEXT)
    if result.status != pq.ExecStatus.TUPLES_OK:
        message = result.get_error_message()
        if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
            raise SourceUnavailable(f"re-reading {relation.qualified_name} failed: {message}")
        raise SourceRefused(
            f"cannot re-read unchanged TOAST columns of {relation.qualified_name}: {message}",
            remedy=f"GRANT SELECT ON {relation.qualified_name} to the capture role, "
            f"or ALTER TABLE {relation.qualified_name} REPLICA IDENTITY FULL",
        )
    width = len(columns)
    rows: dict[tuple[bytes, ...], RereadRow] = {}
    for row in range(result.ntuples):
        ordinal = int(result.get_value(row, 0) or b"0")
        values = tuple(result.get_value(row, 2 + i) for i in range(width))
        rows[keys[ordinal - 1]] = RereadRow(int(result.get_value(row, 1) or b"0"), values)
    return rows


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
    return sql.SQL("SELECT k.o, t.xmin, {} FROM unnest({}) WITH ORDINALITY AS k({}, o) JOIN {} AS t ON {}").format(
        sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(column)) for column in columns),
        arrays,
        sql.SQL(", ").join(names),
        table,
        conditions,
    )


def _array_literal(values: Sequence[bytes]) -> bytes:
    quoted = (b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"' for value in values)
    return b"{" + b",".join(quoted) + b"}"
