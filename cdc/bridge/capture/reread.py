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
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq, sql

from cdc.base.errors import SourceAltered, SourceBusy
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.keyed_table import KeyedTable, keyed_table
from cdc.bridge.source.sqlstates import message_of, result_error, sqlstate_of
from cdc.bridge.source.table import quoted, select_grant
from cdc.contract.change import Relation
from cdc.contract.pgtypes import sql_type
from cdc.contract.snapshot import Snapshot


def current_snapshot(connection: psycopg.Connection[Any]) -> Snapshot:
    """What this connection sees now.

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
        snapshot: that it read in.
        numbers: ``attnum`` of each of the relation's columns by then, in the relation's order; 0 for one that is gone.
        rows: by key; a key without a row is absent.
    """

    snapshot: Snapshot
    numbers: tuple[int, ...]
    rows: dict[tuple[bytes, ...], RereadRow]


class RereadRow(NamedTuple):
    """The current row of one key: its columns' values as asked for, and the low 32 bits of the xid that wrote it."""

    xmin: int
    values: tuple[bytes | None, ...]


def reread(
    connection: psycopg.Connection[Any],
    relation: Relation,
    key_columns: Sequence[str],
    columns: Sequence[str],
    keys: Sequence[tuple[bytes, ...]],
) -> Reread:
    """Read ``columns`` of the rows with these keys as they are now.

    Args:
        connection: an ordinary connection with the pinned settings; its ``lock_timeout`` bounds the wait for a lock.
        relation: the table, found by its OID whatever it is called by now; a partitioned root reads its leaves.
        key_columns: names of the key's columns.
        columns: names of the columns to read.
        keys: text-form key values, one tuple per row.

    Raises:
        SourceBusy: a lock was not to be had in time, or the query was cancelled; ask again on the same connection.
        SourceAltered: the table, or one of these columns, is not there any more as the stream described it; a value of
            another type has another form than the record's schema says, and where the columns stand in another order,
            names were exchanged. No later reading completes these rows. A column that is dropped, renamed or given
            another type writes no row into the stream, so that need not bring another version of them either.
        SourceUnavailable: the connection broke.
        SourceRefused: we may not read the table.
    """
    doing = f"re-reading unchanged TOAST columns of {relation.qualified_name}"
    table = keyed_table(connection, str(relation.relation_id), key_columns)
    query = _query(relation, table, key_columns, columns).as_string(connection).encode()
    parameters = [text_array([key[i] for key in keys]) for i in range(len(key_columns))]
    result = connection.pgconn.exec_params(query, parameters, result_format=pq.Format.TEXT)
    if result.status != pq.ExecStatus.TUPLES_OK:
        if (sqlstate_of(result) or "").startswith(_NOT_OF_ITS_TYPE):
            raise SourceAltered(
                f"{doing}: the key has another type by now: {message_of(result)}",
                remedy="wait: the row is left to the change of the table, which comes later in the stream",
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


_LATER: Final = "wait: the row is left to the change of the table, which comes later in the stream"
_NOT_OF_ITS_TYPE: Final = ("22", "42804", "42846")
"""Data exception, datatype mismatch, no such cast: a key's text was of its type when the stream wrote it."""


def _numbers(relation: Relation, needed: Sequence[str], found: bytes, doing: str) -> tuple[int, ...]:
    """The columns' numbers, unless they show that the stream's columns of these names are others.

    pgoutput sends columns in the order of their numbers, which they keep for life. So names that come in another order
    now have been exchanged; types alone would not tell, nor would the names.
    """
    today = [each.split(b" ") for each in found.split(b",")]
    numbers = tuple(int(number) for number, _, _ in today)
    for column, (_, oid, modifier) in zip(relation.columns, today, strict=True):
        if column.name in needed and (int(oid), int(modifier)) != (column.type_oid, column.type_modifier):
            raise SourceAltered(f"{doing}: column {column.name} has another type by now", remedy=_LATER)
    there = [number for number in numbers if number]
    if there != sorted(there):
        raise SourceAltered(f"{doing}: columns have other names by now", remedy=_LATER)
    return numbers


_COLUMNS: Final = """
(SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', coalesce(a.attnum, 0), coalesce(a.atttypid, 0),
   coalesce(a.atttypmod, 0)), ',' ORDER BY w.place)
 FROM pg_catalog.unnest({names}::text[]) WITH ORDINALITY AS w(name, place)
 LEFT JOIN pg_catalog.pg_attribute a
   ON a.attrelid = {table}::pg_catalog.regclass AND a.attname = w.name AND NOT a.attisdropped)
"""
"""Of the statement's snapshot, which is taken behind the lock."""


def _query(relation: Relation, table: KeyedTable, key_columns: Sequence[str], columns: Sequence[str]) -> sql.Composed:
    """Join the table with the keys; each key column is compared in its own type, so the index is used."""
    arrays = sql.SQL(", ").join(sql.SQL("${}::text[]").format(sql.SQL(str(i + 1))) for i in range(len(key_columns)))
    names = [sql.Identifier(f"k{i}") for i in range(len(key_columns))]
    types = {column.name: sql_type(column) for column in relation.columns}
    name = sql.Literal(table.name.as_string(None))
    # The name is resolved again behind the lock that FROM takes: from there on nobody renames the table
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
    """These texts as a parameter of type ``text[]``."""
    quoted = (b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"' for value in values)
    return b"{" + b",".join(quoted) + b"}"
