"""Re-reads, by key, columns that pgoutput left out because an UPDATE did not touch them (unchanged TOAST).

There is one query per table and batch. It also reads ``xmin``. If that equals the transaction's xid, the row version is
the one that the stream describes, so the value is exact; otherwise it may be newer than the change at hand.

A commit is in the WAL before it is visible (longest while a synchronous standby is awaited). So a re-read can come too
early, and find no row, or the row before the change. Therefore it returns its snapshot, and the caller repeats it until
the snapshot sees every transaction whose rows it completes.

Values come as text from the output functions, as in the stream, not from ``::text`` casts, which differ for bool,
char(n) and "char".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq, sql

from cdc.base.errors import SourceAltered, SourceBusy
from cdc.bridge.source.condition import in_parentheses
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.keyed_table import KeyedTable, keyed_table
from cdc.bridge.source.sqlstates import message_of, result_error, sqlstate_of
from cdc.bridge.source.table import quoted, select_grant
from cdc.contract.change import Relation
from cdc.contract.pgtypes import sql_type
from cdc.contract.snapshot import Snapshot


def current_snapshot(connection: psycopg.Connection[Any]) -> Snapshot:
    """Returns what this connection sees now.

    Raises:
        SourceUnavailable: the connection broke.
    """
    with source_errors("reading the snapshot"):
        row = connection.execute("SELECT pg_catalog.pg_current_snapshot()::text").fetchone()
    assert row is not None
    return Snapshot.parse(row[0])


class Reread(NamedTuple):
    """What one query found.

    Attributes:
        snapshot: the snapshot that it read in.
        numbers: ``attnum`` of each of the relation's columns, in the relation's order; 0 for one that is gone.
        rows: the rows by key; keys without a row are absent.
    """

    snapshot: Snapshot
    numbers: tuple[int, ...]
    rows: dict[tuple[bytes, ...], RereadRow]


class RereadRow(NamedTuple):
    """The current row of one key: the values that were asked for, and the low 32 bits of the xid that wrote it."""

    xmin: int
    values: tuple[bytes | None, ...]


def reread(
    connection: psycopg.Connection[Any],
    relation: Relation,
    key_columns: Sequence[str],
    columns: Sequence[str],
    keys: Sequence[tuple[bytes, ...]],
    condition: str | None = None,
) -> Reread:
    """Read ``columns`` of the rows with these keys, as they are now.

    Args:
        connection: an ordinary connection with the pinned settings; its ``lock_timeout`` bounds the wait for a lock.
        relation: the table, found by its OID under any name; a partitioned root reads its leaves.
        key_columns: the names of the key's columns.
        columns: the names of the columns to read.
        keys: the keys' values as text, one tuple per row.
        condition: the publication's row filter, as the server printed it. A row that does not satisfy it any more has
            left the topic, and counts as gone.

    Raises:
        SourceBusy: a lock was not granted in time, or the query was cancelled; ask again on the same connection.
        SourceAltered: the table, or one of these columns, is no longer as the stream described it. With another type,
            the value would not fit the record's schema. In another order, columns have exchanged their names. No later
            reading completes these rows. Dropping, renaming or retyping a column writes no row into the stream, so the
            stream need not bring another version of them either.
        SourceUnavailable: the connection broke.
        SourceRefused: our role may not read the table.
    """
    doing = f"re-reading unchanged TOAST columns of {relation.qualified_name}"
    table = keyed_table(connection, str(relation.relation_id), key_columns)
    if condition is not None:  # names in it have no table, so it goes where there are no others
        read = sql.SQL(", ").join(map(sql.Identifier, dict.fromkeys((*key_columns, *columns))))
        rows_of = sql.SQL("(SELECT xmin, {} FROM {} WHERE {})")
        table = table._replace(source=rows_of.format(read, table.source, sql.SQL(in_parentheses(condition))))
    query = _query(relation, table, key_columns, columns).as_string(connection).encode()
    parameters = [text_array([key[i] for key in keys]) for i in range(len(key_columns))]
    result = connection.pgconn.exec_params(query, parameters, result_format=pq.Format.TEXT)
    if result.status != pq.ExecStatus.TUPLES_OK:
        if (sqlstate_of(result) or "").startswith(_NOT_OF_ITS_TYPE):
            raise SourceAltered(
                f"{doing}: the key has another type now: {message_of(result)}",
                remedy="wait: the row follows with the change of the table, which comes later in the stream",
            )
        role = quoted(connection.info.user)
        grant = select_grant(relation.namespace, table.name.as_string(connection), role)
        instead = f"  -- or ALTER TABLE {table.name.as_string(connection)} REPLICA IDENTITY FULL;"
        raise result_error(doing, result, remedy=grant + instead, role=role)
    rows: dict[tuple[bytes, ...], RereadRow] = {}
    now: bytes | None = None
    for row in range(result.ntuples):
        oid, ordinal, _, now, xmin, *values = (result.get_value(row, column) for column in range(len(columns) + 5))
        if int(oid or b"") != relation.relation_id:
            raise SourceBusy(
                f"{doing}: the table was renamed meanwhile",
                remedy="wait: the rows are read again by the table's new name",
            )
        if ordinal is not None and xmin is not None:
            rows[keys[int(ordinal) - 1]] = RereadRow(int(xmin), tuple(values))
    numbers = _numbers(relation, columns, now or b"", doing)
    return Reread(Snapshot.parse((result.get_value(0, 2) or b"").decode()), numbers, rows)


_LATER: Final = "wait: the row follows with the change of the table, which comes later in the stream"
_NOT_OF_ITS_TYPE: Final = ("22", "42804", "42846")
"""Data exception, datatype mismatch, no such cast. A key's text did fit its type when the stream wrote it."""


def _numbers(relation: Relation, needed: Sequence[str], found: bytes, doing: str) -> tuple[int, ...]:
    """Returns the columns' numbers, unless they show that the stream meant other columns by these names.

    pgoutput sends columns in the order of their numbers, which they keep for life. So if the names now come in another
    order, they were exchanged. Neither types nor names alone would tell.
    """
    today = [each.split(b" ") for each in found.split(b",")]
    numbers = tuple(int(number) for number, _, _ in today)
    for column, (_, oid, modifier) in zip(relation.columns, today, strict=True):
        if column.name in needed and (int(oid), int(modifier)) != (column.type_oid, column.type_modifier):
            raise SourceAltered(f"{doing}: column {column.name} has another type now", remedy=_LATER)
    there = [number for number in numbers if number]
    if there != sorted(there):
        raise SourceAltered(f"{doing}: columns have other names now", remedy=_LATER)
    return numbers


_COLUMNS: Final = """
(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', coalesce(a.attnum, 0), coalesce(a.atttypid, 0),
   coalesce(a.atttypmod, 0)), ',' ORDER BY w.place)
 FROM pg_catalog.unnest({names}::text[]) WITH ORDINALITY AS w(name, place)
 LEFT JOIN pg_catalog.pg_attribute a
   ON a.attrelid = {table}::pg_catalog.regclass AND a.attname = w.name AND NOT a.attisdropped)
"""
"""Reads the columns in the statement's snapshot, which is taken after the lock."""


def _query(relation: Relation, table: KeyedTable, key_columns: Sequence[str], columns: Sequence[str]) -> sql.Composed:
    """Returns a join of the table with the keys. Each key column is compared in its own type, to use the index."""
    arrays = sql.SQL(", ").join(sql.SQL("${}::text[]").format(sql.SQL(str(i + 1))) for i in range(len(key_columns)))
    names = [sql.Identifier(f"k{i}") for i in range(len(key_columns))]
    types = {column.name: sql_type(column) for column in relation.columns}
    name = sql.Literal(table.name.as_string(None))
    # The name is resolved again after FROM has taken its lock: from then on, nobody can rename the table
    return sql.SQL(
        "SELECT {}::pg_catalog.regclass::pg_catalog.oid, k.o, pg_catalog.pg_current_snapshot(), {}, t.xmin, {} "
        "FROM unnest({}) WITH ORDINALITY AS k({}, o) LEFT JOIN {} AS t ON {}"
    ).format(
        name,
        sql.SQL(_COLUMNS).format(names=sql.Literal([column.name for column in relation.columns]), table=name),
        sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(column)) for column in columns),
        arrays,
        sql.SQL(", ").join(names),
        table.source,
        table.equal(
            [sql.Identifier("t", column) for column in key_columns],
            [
                sql.SQL("k.{}::{}").format(key, sql.SQL(types[column]))
                for column, key in zip(key_columns, names, strict=True)
            ],
        ),
    )


def text_array(values: Sequence[bytes]) -> bytes:
    """Returns these texts as a parameter of type ``text[]``."""
    quoted = (b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"' for value in values)
    return b"{" + b",".join(quoted) + b"}"
