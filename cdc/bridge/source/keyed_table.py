"""How SQL reads a table by its key: under its present name, without tables that inherit, and with its key's operators.

search_path is pinned, so a bare ``=`` finds built-in types only. The equality operator of any other type has a schema.
The key's index tells which operator makes its columns unique, and so which operator it serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from cdc.base.errors import SourceAltered
from cdc.base.table_names import qualified
from cdc.bridge.source.connect import source_errors


class KeyedTable(NamedTuple):
    """A table, ready to be put into a query.

    Attributes:
        name: its quoted name.
        source: what follows FROM: a partitioned root reads its leaves, but no table reads those that inherit from it.
        operators: the equality operator of each key column; None for a type that has none.
    """

    name: sql.Identifier
    source: sql.Composed
    operators: tuple[sql.Composed | None, ...]

    def equal(self, left: Sequence[sql.Composable], right: Sequence[sql.Composable]) -> sql.Composed:
        """Returns the condition that two keys are equal, column by column. Both sides have the columns' types."""
        return sql.SQL(" AND ").join(
            sql.SQL("{}::pg_catalog.text OPERATOR(pg_catalog.=) {}::pg_catalog.text").format(a, b)
            if operator is None
            else sql.SQL("{} {} {}").format(a, operator, b)
            for operator, a, b in zip(self.operators, left, right, strict=True)
        )


def keyed_table(conn: psycopg.Connection[Any], table: str, key_columns: Sequence[str]) -> KeyedTable:
    """Look the table up in the catalog.

    Args:
        conn: a connection with the pinned settings.
        table: what ``regclass`` takes: a quoted name, or an OID, which survives a rename.
        key_columns: the columns' names, in the order in which ``KeyedTable.equal`` will get their values.

    Raises:
        SourceAltered: the table or one of the columns is gone.
        SourceUnavailable: the connection broke.
    """
    with source_errors("looking a table up"):
        found = conn.execute(_TABLE, {"table": table}).fetchone()
        if found is None:
            raise SourceAltered(f"table {table} is gone", remedy="run `cdc tables list` for what there is")
        oid, namespace, name, kind = found
        rows = conn.execute(_OPERATORS, {"table": oid, "columns": list(key_columns)}).fetchall()
    if len(rows) < len(key_columns):
        raise SourceAltered(
            f"table {qualified(namespace, name)} no longer has the columns {', '.join(key_columns)}",
            remedy="run the command again: it will use today's key",
        )
    identifier = sql.Identifier(namespace, name)
    return KeyedTable(
        identifier,
        sql.SQL("{}{}").format(sql.SQL("" if kind == "p" else "ONLY "), identifier),
        tuple(
            None if operator is None else sql.SQL("OPERATOR({}.{})").format(sql.Identifier(schema), sql.SQL(operator))
            for schema, operator in rows
        ),
    )


_TABLE: Final = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(table)s::pg_catalog.regclass
"""

# For each column, take the operator class of a unique index on it, preferably of the index that makes the key. Without
# such an index (a key from source.keys), take the default class of its type, or of a type that it is coerced to as is.
# 403 is btree and 405 is hash on every server; equality is strategy 3 in a btree class, and 1 in a hash class.
_OPERATORS: Final = """
SELECT operator.nspname::text, operator.oprname::text
FROM pg_catalog.unnest(%(columns)s::text[]) WITH ORDINALITY AS wanted(name, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = %(table)s AND a.attname = wanted.name AND NOT a.attisdropped
CROSS JOIN LATERAL (
  WITH RECURSIVE up AS (
    SELECT oid, typtype, typbasetype, typelem, typlen FROM pg_catalog.pg_type WHERE oid = a.atttypid
    UNION ALL
    SELECT p.oid, p.typtype, p.typbasetype, p.typelem, p.typlen
    FROM pg_catalog.pg_type p JOIN up ON up.typtype = 'd' AND p.oid = up.typbasetype
  ) SELECT oid, CASE WHEN typelem <> 0 AND typlen = -1 THEN 2277 ELSE CASE typtype
      WHEN 'e' THEN 3500 WHEN 'r' THEN 3831 WHEN 'm' THEN 4537 WHEN 'c' THEN 2249 END END AS pseudo
  FROM up WHERE typtype <> 'd') base
LEFT JOIN LATERAL (
  SELECT n.nspname, o.oprname
  FROM (
    SELECT i.indclass[k.place - 1] AS opclass, i.indisprimary OR i.indisreplident AS is_key, true AS is_index
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
    WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND k.attnum = a.attnum
      AND k.place <= i.indnkeyatts
    UNION ALL
    SELECT c.oid, false, false
    FROM pg_catalog.pg_opclass c
    WHERE c.opcdefault AND (c.opcintype IN (base.oid, base.pseudo) OR EXISTS (
      SELECT FROM pg_catalog.pg_cast
      WHERE castsource = base.oid AND casttarget = c.opcintype AND castmethod = 'b' AND castcontext = 'i'))
  ) candidate
  JOIN pg_catalog.pg_opclass c ON c.oid = candidate.opclass
  JOIN pg_catalog.pg_amop m ON m.amopfamily = c.opcfamily AND m.amopmethod = c.opcmethod
    AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
    AND (m.amopmethod, m.amopstrategy) IN ((403, 3), (405, 1))
  JOIN pg_catalog.pg_operator o ON o.oid = m.amopopr
  JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
  ORDER BY candidate.is_key DESC, candidate.is_index DESC, c.opcintype = base.oid DESC, m.amopmethod, o.oid
  LIMIT 1) operator ON true
ORDER BY wanted.place
"""
