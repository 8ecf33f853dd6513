"""Reads what one transaction beside the stream sees of a table: its snapshot, H, and what is published of it.

H is the end of the WAL when the snapshot was taken: everything that the snapshot sees committed before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors as sqlstate

from cdc.base.lsn import LSN
from cdc.bridge.capture.standby import Sight
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.table import TableInfo
from cdc.bridge.source.wal_end import at_rest, wal_end
from cdc.contract.change import Column, Relation
from cdc.contract.pgtypes import type_name
from cdc.contract.snapshot import Snapshot


class Moment(NamedTuple):
    """The moment that a transaction reads at.

    Attributes:
        snapshot: the snapshot whose changes it sees; on a standby it may see more.
        snapshot_text: the snapshot as ``pg_current_snapshot()`` prints it.
        lsn: H: everything that the snapshot sees committed before it.
        filenode: the table's filenode at that moment; None for a partitioned table.
    """

    snapshot: Snapshot
    snapshot_text: str
    lsn: LSN
    filenode: int | None


def moment_of(conn: psycopg.Connection[Any], quoted_name: str, sight: Sight | None) -> Moment:
    """Take the snapshot of the transaction that has just begun.

    Args:
        sight: on a standby, what it certainly shows; None for a primary.

    Raises:
        UndefinedTable: the table does not exist any more.
    """
    row = conn.execute(_STANDBY_MOMENT if sight else _MOMENT, (quoted_name,)).fetchone()
    assert row is not None
    if sight is not None:
        return Moment(Snapshot.parse(sight.snapshot_text), sight.snapshot_text, wal_end(sight.primary), row[0])
    snapshot, lsn, filenode = row
    return Moment(Snapshot.parse(snapshot), snapshot, at_rest(LSN.parse(lsn)), filenode)


class PublishedPart(NamedTuple):
    """What a publication carries of a table: these columns (None: all) of the rows that pass the filter."""

    columns: Sequence[str] | None
    row_filter: str | None


def published_part(conn: psycopg.Connection[Any], table: TableInfo, publication: str) -> PublishedPart:
    """Returns column list and row filter. PostgreSQL 14 has neither. Printing a filter waits for locks on the table."""
    return _published(conn, table, publication, "pg_catalog.pg_get_expr(r.prqual, r.prrelid)")


def shape_of(conn: psycopg.Connection[Any], table: TableInfo, publication: str) -> Relation:
    """Returns the published columns of a table today. Waits for no lock on the table.

    Raises:
        SourceAltered: the table is gone.
    """
    with source_errors(f"reading the columns of {table.qualified_name}"):
        return describe(conn, table, _published(conn, table, publication, "NULL").columns)


def _published(conn: psycopg.Connection[Any], table: TableInfo, publication: str, row_filter: str) -> PublishedPart:
    if conn.info.server_version < 150000:
        return PublishedPart(None, None)
    query = _PUBLISHED_PART.format(row_filter=row_filter).encode()
    row = conn.execute(query, (publication, table.namespace, table.name)).fetchone()
    return PublishedPart(None, None) if row is None else PublishedPart(*row)


def column_signatures(conn: psycopg.Connection[Any], tables: Sequence[int]) -> dict[int, str]:
    """Returns by table oid a hash of the numbers, names and types of its columns, and of their enums' values."""
    with source_errors("reading the catalog"):
        rows = conn.execute(
            "SELECT attrelid::bigint,"
            f" md5(string_agg(concat_ws(':', attnum, attname, atttypid, atttypmod, {_LABELS}), ',' ORDER BY attnum))"
            " FROM pg_catalog.pg_attribute a"
            " WHERE attrelid = ANY (%s::bigint[]::oid[]) AND attnum > 0 AND NOT attisdropped GROUP BY attrelid",
            (list(tables),),
        ).fetchall()
    return dict(rows)


def describe(conn: psycopg.Connection[Any], table: TableInfo, columns: Sequence[str] | None) -> Relation:
    """Returns the table as the stream's next Relation message would describe it, with base types for domains."""
    # PostgreSQL 15 lists generated columns among the published ones, but no version before 18 sends them.
    generated = columns is not None and conn.info.server_version >= 180000
    values = {"table": table.quoted_name, "columns": columns, "generated": generated}
    rows = conn.execute(_COLUMNS_OF_ONE, values).fetchall()
    if not rows:
        raise sqlstate.UndefinedTable(table.qualified_name)
    return Relation(
        relation_id=rows[0][0],
        namespace=table.namespace,
        name=table.name,
        replica_identity=table.replica_identity,
        columns=tuple(_column(row, table.key) for row in rows),
    )


def columns_of(conn: psycopg.Connection[Any], tables: Sequence[TableInfo]) -> dict[int, tuple[Column, ...]]:
    """Returns by table oid its columns today, without generated ones, in attribute order. Waits for no lock."""
    keys = {each.oid: each.key for each in tables}
    found: dict[int, list[Column]] = {}
    with source_errors("reading the catalog"):
        rows = conn.execute(_COLUMNS_OF_MANY, {"tables": list(keys), "columns": None, "generated": False}).fetchall()
    for row in rows:
        found.setdefault(row[0], []).append(_column(row, keys[row[0]]))
    return {oid: tuple(columns) for oid, columns in found.items()}


def _column(row: Sequence[Any], key: Sequence[str]) -> Column:
    _, name, oid, modifier, namespace, base, number, labels = row
    enums = tuple((int(value), str(label)) for value, label in labels)
    return Column(name, oid, modifier, type_name(namespace, base), name in key, number, enums)


# pg_publication_tables would say the same, but lists all tables, whichever is asked for. A column list and a row filter
# count only if neither FOR ALL TABLES nor FOR TABLES IN SCHEMA carries the table as well. From PostgreSQL 18 on, stored
# generated columns come along if the publication says so; to_jsonb reads NULL where the option is unknown.
_PUBLISHED_PART: Final = """
SELECT
  CASE WHEN r.prattrs IS NOT NULL OR to_jsonb(p) ->> 'pubgencols' = 's' THEN ARRAY(
    SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      AND CASE WHEN r.prattrs IS NULL THEN a.attgenerated IN ('', 's') ELSE a.attnum = ANY (r.prattrs::int2[]) END
    ORDER BY a.attnum) END,
  {row_filter}
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN pg_catalog.pg_publication p
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid AND NOT p.puballtables
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid)
WHERE p.pubname = %s AND n.nspname = %s AND c.relname = %s
"""

_STANDBY_MOMENT: Final = "SELECT pg_catalog.pg_relation_filenode(%s::pg_catalog.regclass)::bigint"

_MOMENT: Final = """
SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_current_wal_insert_lsn()::text,
  pg_catalog.pg_relation_filenode(%s::pg_catalog.regclass)::bigint
"""

# The oid and a hash of the label of each enum value that occurs in a column's type, however deep. ALTER TYPE … RENAME
# VALUE gives rows another text, and the stream has nothing of that. Labels are hashed because they need not be UTF-8.
_LABELS: Final = """
CASE WHEN a.atttypid < 16384 THEN '[]' ELSE (
  WITH RECURSIVE part AS (
    SELECT oid, typbasetype, typelem, typrelid FROM pg_catalog.pg_type WHERE oid = a.atttypid
    UNION
    SELECT p.oid, p.typbasetype, p.typelem, p.typrelid
    FROM part CROSS JOIN LATERAL (
      SELECT part.typbasetype UNION ALL SELECT part.typelem
      UNION ALL SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngtypid = part.oid
      UNION ALL SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngmultitypid = part.oid
      UNION ALL SELECT atttypid FROM pg_catalog.pg_attribute
        WHERE attrelid = part.typrelid AND attnum > 0 AND NOT attisdropped) AS below (oid)
    JOIN pg_catalog.pg_type p ON p.oid = below.oid
  ) SELECT coalesce(jsonb_agg(jsonb_build_array(e.oid::bigint, md5(e.enumlabel::text)) ORDER BY e.oid), '[]')
  FROM pg_catalog.pg_enum e JOIN part ON part.oid = e.enumtypid) END"""

_COLUMNS: Final = f"""
SELECT a.attrelid::bigint, a.attname::text, a.atttypid::bigint, a.atttypmod, n.nspname::text, t.typname::text,
  a.attnum::int, {_LABELS}
FROM pg_catalog.pg_attribute a
CROSS JOIN LATERAL (
  WITH RECURSIVE up AS (
    SELECT oid, typtype, typbasetype FROM pg_catalog.pg_type WHERE oid = a.atttypid
    UNION ALL
    SELECT p.oid, p.typtype, p.typbasetype
    FROM pg_catalog.pg_type p JOIN up ON up.typtype = 'd' AND p.oid = up.typbasetype
  ) SELECT oid FROM up WHERE typtype <> 'd') base
JOIN pg_catalog.pg_type t ON t.oid = base.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE a.attnum > 0 AND NOT a.attisdropped
  AND (%(columns)s::text[] IS NULL OR a.attname = ANY (%(columns)s::text[]))
  AND (a.attgenerated = '' OR %(generated)s)
"""

_COLUMNS_OF_ONE: Final = f"{_COLUMNS} AND a.attrelid = %(table)s::pg_catalog.regclass ORDER BY a.attnum"
_COLUMNS_OF_MANY: Final = f"{_COLUMNS} AND a.attrelid = ANY (%(tables)s::bigint[]::oid[]) ORDER BY a.attrelid, a.attnum"
