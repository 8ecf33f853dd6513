"""Handles names that are not UTF-8. A SQL_ASCII database accepts them, but cannot send them to a client with UTF-8.

One such name in an answer makes the whole query fail, so somebody else's table would stop every command. Queries leave
such names out, and a separate one asks for them in escapes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from cdc.bridge.source.connect import source_errors

_SQL_ASCII: Final = "SQL_ASCII"
# It matches bytes, as regular expressions do in such a database: https://www.unicode.org/versions/latest/ table 3-7.
_UTF8: Final = (
    r"^([\\x01-\\x7F]|[\\xC2-\\xDF][\\x80-\\xBF]|\\xE0[\\xA0-\\xBF][\\x80-\\xBF]|[\\xE1-\\xEC\\xEE\\xEF][\\x80-\\xBF]{2}"
    r"|\\xED[\\x80-\\x9F][\\x80-\\xBF]|\\xF0[\\x90-\\xBF][\\x80-\\xBF]{2}|[\\xF1-\\xF3][\\x80-\\xBF]{3}"
    r"|\\xF4[\\x80-\\x8F][\\x80-\\xBF]{2})*$"
)


class UnreadableTable(NamedTuple):
    """A table whose name is not UTF-8, or that has a column, partition or type with such a name.

    Attributes:
        namespace: the schema's name, with octal escapes for bytes that are not ASCII.
        name: the table's name, escaped in the same way.
        what: what has the name that is not UTF-8, in words.
    """

    oid: int
    namespace: str
    name: str
    what: str


def readable(conn: psycopg.Connection[Any], *names: str) -> sql.SQL:
    """Returns a condition: the server can send all of these expressions to us."""
    if conn.info.parameter_status("server_encoding") != _SQL_ASCII:
        return sql.SQL("true")
    return sql.SQL(" AND ".join(_is_utf8(each) for each in names))


def shown(conn: psycopg.Connection[Any], name: str) -> sql.SQL:
    """Returns an expression that the server can send to us, with octal escapes where it needs them."""
    if conn.info.parameter_status("server_encoding") != _SQL_ASCII:
        return sql.SQL(name)
    return sql.SQL(f"CASE WHEN {_is_utf8(name)} THEN ({name})::text ELSE {_escaped(name)} END")


def unreadable_tables(conn: psycopg.Connection[Any]) -> list[UnreadableTable]:
    """Returns the database's tables with such names; a partition counts as its root."""
    if conn.info.parameter_status("server_encoding") != _SQL_ASCII:
        return []
    with source_errors("looking for names that are not UTF-8"):
        rows = conn.execute(_UNREADABLE).fetchall()
    return [UnreadableTable(*row) for row in rows]


def _is_utf8(expression: str) -> str:
    return f"(({expression})::text COLLATE \"C\" ~ E'{_UTF8}')"


def _escaped(expression: str) -> str:
    return f"pg_catalog.encode(pg_catalog.convert_to(({expression})::text, '{_SQL_ASCII}'), 'escape')"


_UNREADABLE: Final = f"""
WITH named AS (
  SELECT c.oid, 'its name' AS what FROM pg_catalog.pg_class c
  WHERE c.relkind IN ('r', 'p') AND NOT {_is_utf8("c.relname")}
  UNION ALL SELECT c.oid, 'its schema' FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p') AND NOT {_is_utf8("n.nspname")}
  UNION ALL SELECT a.attrelid, 'column ' || {_escaped("a.attname")} FROM pg_catalog.pg_attribute a
  WHERE a.attnum > 0 AND NOT a.attisdropped AND NOT {_is_utf8("a.attname")}
  UNION ALL SELECT a.attrelid, 'the type of column ' || {_escaped("a.attname")} FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
  WHERE a.attnum > 0 AND NOT a.attisdropped AND NOT ({_is_utf8("t.typname")} AND {_is_utf8("n.nspname")})
)
SELECT r.oid::bigint, {_escaped("n.nspname")}, {_escaped("r.relname")},
  min(CASE WHEN c.relispartition THEN 'in a partition, ' ELSE '' END || named.what)
FROM named JOIN pg_catalog.pg_class c ON c.oid = named.oid AND c.relkind IN ('r', 'p')
JOIN pg_catalog.pg_class r ON r.oid = CASE WHEN c.relispartition THEN pg_catalog.pg_partition_root(c.oid) ELSE c.oid END
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND r.relpersistence = 'p'
GROUP BY r.oid, n.nspname, r.relname ORDER BY 2, 3
"""
