"""Compares source, folded topic and replica row by row, with every column as the text that the server prints.

Each side becomes ``Rows``: column texts by key texts, as bytes that the output functions print under pinned settings.
The caller must make sure that all three sides are at the same LSN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import psycopg
from psycopg import sql

from cdc.base.table_names import parts
from cdc.contract.json_members import members
from cdc.lab.proof.server_text import ColumnShape, FormError, TypeForm, server_text
from cdc.lab.proof.topic_side import LiveRow, ReadFields, TopicCopy, read_topics, topic_name

Key = tuple[bytes | None, ...]
Row = tuple[bytes | None, ...]
Rows = dict[Key, Row]

_PINNED: Final = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1 -c bytea_output=hex"
    " -c lc_monetary=C -c search_path=pg_catalog -c client_encoding=UTF8"
)

_EXAMPLES: Final = 5

# A domain has the form of its base type. Array elements have the form of their type only if that is built in: for other
# types the stream tells only the name, so they are strings in the topic.
_COLUMNS: Final = """
WITH RECURSIVE base AS (
    SELECT attnum, attname, atttypid AS type FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    UNION ALL
    SELECT attnum, attname, typbasetype FROM base JOIN pg_type t ON t.oid = type WHERE typtype = 'd')
SELECT attname, CASE WHEN coalesce(e.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace
    THEN coalesce(e.typname, t.typname) END, e.typdelim
FROM base JOIN pg_type t ON t.oid = base.type
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typoutput = 'array_out'::regproc
WHERE t.typtype <> 'd' ORDER BY attnum
"""

_KIND: Final = "SELECT relkind::text FROM pg_class WHERE oid = %s::regclass"

_KEY: Final = """
SELECT attname FROM pg_index, unnest(indkey) WITH ORDINALITY AS k (number, place), pg_attribute
WHERE indrelid = %s::regclass AND (indisprimary OR indisreplident) AND attrelid = indrelid AND attnum = number
ORDER BY indisprimary DESC, indexrelid, place
"""

FORMS: Final = {
    "bool": TypeForm.BOOL,
    **dict.fromkeys(("int2", "int4", "int8", "oid", "float4", "float8"), TypeForm.NUMBER),
    **dict.fromkeys(("json", "jsonb"), TypeForm.DOCUMENT),
}


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as the source's catalog describes it: ``schema.table``, published columns, key columns in key order."""

    table: str
    columns: tuple[ColumnShape, ...]
    key: tuple[str, ...]

    def key_of(self, row: Sequence[bytes | None]) -> Key:
        """Returns the key columns of a row."""
        names = [column.name for column in self.columns]
        return tuple(row[names.index(name)] for name in self.key)


@dataclass(frozen=True, slots=True)
class CopyDifference:
    """The differences between one copy of a table and the source; keys as the server prints them."""

    side: str
    missing: tuple[Key, ...]
    extra: tuple[Key, ...]
    different: tuple[tuple[Key, str], ...]
    """Pairs of a key and a text for people about what differs."""

    def __str__(self) -> str:
        parts = (
            ("missing", [_show(key) for key in self.missing]),
            ("extra", [_show(key) for key in self.extra]),
            ("different", [f"{_show(key)} ({what})" for key, what in self.different]),
        )
        return f"{self.side}: " + ", ".join(
            f"{len(keys)} {what}, such as {'; '.join(keys[:_EXAMPLES])}" for what, keys in parts if keys
        )


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The result of comparing one table on its three sides."""

    table: str
    row_count: int
    topic: TopicCopy
    differences: tuple[CopyDifference, ...]

    @property
    def holds(self) -> bool:
        """Whether the sides are equal, and no record of the topic came twice or out of order."""
        return not (self.differences or self.topic.backward or self.topic.duplicates)

    def findings(self) -> Iterator[str]:
        """Yields a line for everything that is wrong."""
        yield from (f"{self.table}: {difference}" for difference in self.differences)
        yield from (f"{self.table}: went back: {where}" for where in self.topic.backward[:_EXAMPLES])
        yield from (f"{self.table}: came twice: {where}" for where in self.topic.duplicates[:_EXAMPLES])


@contextmanager
def pinned(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a read-only connection with settings under which the server prints the texts of the topic contract."""
    with psycopg.connect(dsn, autocommit=True, options=_PINNED + " -c default_transaction_read_only=on") as connection:
        yield connection


def describe(connection: psycopg.Connection[Any], table: str, key: tuple[str, ...] = ()) -> TableShape:
    """Returns the shape of a table.

    Args:
        connection: a connection to the source.
        table: ``schema.table``, unquoted.
        key: the key columns, if they are not those of the primary key or replica identity index.
    """
    name = _identifier(table).as_string(connection)
    columns = tuple(
        ColumnShape(column, FORMS.get(type_name, TypeForm.TEXT), delimiter.encode() if delimiter else None)
        for column, type_name, delimiter in connection.execute(_COLUMNS, (name,))
    )
    return TableShape(table, columns, key or tuple(row[0] for row in connection.execute(_KEY, (name,))))


def table_rows(connection: psycopg.Connection[Any], shape: TableShape, table: str | None = None) -> Rows:
    """Returns every row of the table, or of its replica ``table``, as text; needs a ``pinned`` connection."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in shape.columns)
    name = _identifier(table or shape.table)
    # ONLY leaves out the rows of tables that inherit, which have topics of their own. A partitioned table has no rows
    # but those of its partitions, so it needs all of them.
    kind = connection.execute(_KIND, (name.as_string(connection),)).fetchone()
    only = sql.SQL("ONLY " if kind == ("r",) else "")
    cursor = connection.execute(sql.SQL("SELECT {} FROM {}{}").format(columns, only, name))
    result, width = cursor.pgresult, len(shape.columns)
    assert result is not None
    rows: Rows = {}
    for number in range(result.ntuples):
        row = tuple(result.get_value(number, column) for column in range(width))
        rows[shape.key_of(row)] = row
    assert len(rows) == result.ntuples, f"{shape.key} is not a unique key of {table or shape.table}"
    return rows


def topic_rows(live: Mapping[bytes, LiveRow], shape: TableShape) -> Rows:
    """Returns a folded topic as rows.

    Raises:
        FormError: a record is not in the contract's form, contradicts its key, or lacks columns.
    """
    rows: Rows = {}
    for key_json, live_row in live.items():
        try:
            key, row = _fold_row(key_json, live_row, shape)
        except (FormError, msgspec.MsgspecError) as error:
            raise FormError(f"{shape.table}, record with key {key_json.decode(errors='replace')}: {error}") from error
        rows[key] = row
    return rows


def _fold_row(key_json: bytes, live_row: LiveRow, shape: TableShape) -> tuple[Key, Row]:
    key_fields, fields = members(key_json), members(live_row.value)
    names = [column.name for column in shape.columns]
    if list(fields) != names:
        raise FormError(f"it has the columns {list(fields)}, not {names}")
    row = tuple(
        b"null" if number in live_row.null_documents else server_text(bytes(fields[column.name]), column)
        for number, column in enumerate(shape.columns)
    )
    by_name = {column.name: column for column in shape.columns}
    key = tuple(
        # A key column is never NULL, so null here is the JSON document.
        b"null" if bytes(raw) == b"null" else server_text(bytes(raw), by_name[name])
        for name, raw in key_fields.items()
        if name in by_name
    )
    if (tuple(key_fields), key) != (shape.key, shape.key_of(row)):
        raise FormError(f"its row has the key {shape.key_of(row)}")
    return key, row


def difference(side: str, source: Rows, copy: Rows, shape: TableShape) -> CopyDifference | None:
    """Returns the differences between ``copy`` and ``source``; None if they are equal."""
    missing = tuple(key for key in source if key not in copy)
    extra = tuple(key for key in copy if key not in source)
    different = tuple(
        (key, _explain(row, copy[key], shape)) for key, row in source.items() if key in copy and copy[key] != row
    )
    return CopyDifference(side, missing, extra, different) if missing or extra or different else None


def prove(
    *,
    source_dsn: str,
    bootstrap: str,
    name: str,
    replica_dsn: str,
    shapes: Iterable[TableShape | str],
    fields: ReadFields | None = None,
) -> list[TableVerdict]:
    """Compare every table on its three sides, which must be at the same LSN and must not change meanwhile.

    Args:
        source_dsn: the captured database.
        bootstrap: the Kafka cluster with the topics ``{name}.{schema}.{table}``.
        name: the ``name`` in the configuration.
        replica_dsn: the mirrored database, with tables named as in the source.
        shapes: tables, as shapes or as ``schema.table``.
        fields: reads values that are not rows in JSON; None if all are.
    """
    verdicts = []
    with pinned(source_dsn) as source, pinned(replica_dsn) as replica:
        tables = [shape if isinstance(shape, TableShape) else describe(source, shape) for shape in shapes]
        copies = read_topics(bootstrap, [topic_name(name, shape.table) for shape in tables], fields)
        for shape in tables:
            copy = copies[topic_name(name, shape.table)]
            rows = table_rows(source, shape)
            found = (
                difference("topic", rows, topic_rows(copy.live, shape), shape),
                difference("replica", rows, table_rows(replica, shape), shape),
            )
            verdicts.append(TableVerdict(shape.table, len(rows), copy, tuple(one for one in found if one is not None)))
    return verdicts


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*parts(table))


def _explain(expected: Row, found: Row, shape: TableShape) -> str:
    return ", ".join(
        f"{column.name}: {_short(one)} in the source, {_short(other)} here"
        for column, one, other in zip(shape.columns, expected, found, strict=True)
        if one != other
    )


def _short(text: bytes | None) -> str:
    return (
        "NULL" if text is None else repr(text.decode() if len(text) <= 60 else f"{text[:57].decode(errors='ignore')}…")
    )


def _show(key: Key) -> str:
    return ", ".join(_short(part) for part in key)
