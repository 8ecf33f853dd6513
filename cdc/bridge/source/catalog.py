"""Reads today's catalog: which tables are in scope, and what they look like.

Use it for preflight, publication and re-reading only. A row of the stream is decoded from what the stream itself said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import psycopg
from psycopg import sql

from cdc.base.errors import SourceBusy
from cdc.base.table_names import qualified
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.partitions import with_partitions
from cdc.bridge.source.readable import readable, shown, unreadable_tables
from cdc.bridge.source.table import Index, TableInfo, choose_key
from cdc.contract.change import ReplicaIdentity
from cdc.contract.patterns import in_scope

KIND_NAMES: Final[Mapping[str, str]] = {
    "r": "ordinary table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "S": "sequence",
}
"""``pg_class.relkind`` in words."""

_ALL_ROWS: Final[Mapping[str, str]] = MappingProxyType({})

OWN_NAMESPACE: Final = "cdc"
"""The namespace of this project's own tables: never captured, so that a bridge cannot capture a sink's bookkeeping."""


@dataclass(frozen=True, slots=True)
class OtherRelation:
    """A relation that a pattern names, but that cannot be captured; ``what`` it is in words, such as ``a view``.

    Attributes:
        unreadable: what in a table has a name that is not UTF-8. The table's own name is in octal escapes then.
    """

    namespace: str
    name: str
    what: str
    partition_root: str
    explicit: bool
    unreadable: str = ""

    @property
    def qualified_name(self) -> str:
        """``namespace.name``, as ``table_names`` spells it."""
        return qualified(self.namespace, self.name)


def find_tables(
    conn: psycopg.Connection[Any],
    patterns: Sequence[str],
    exclude: Sequence[str],
    keys: Mapping[str, Sequence[str]],
    rows: Mapping[str, str] = _ALL_ROWS,
) -> tuple[TableInfo, ...]:
    """Returns the tables that the patterns name, sorted: ordinary ones, and roots instead of their partitions.

    Args:
        patterns: ``schema.table``, with ``*`` for any characters; the first dot divides. Case matters.
        exclude: patterns whose tables are taken out again.
        keys: maps ``schema.table`` to key columns, from ``source.keys``.
        rows: maps ``schema.table`` to the condition of its rows, from ``source.rows``.
    """
    return tuple(
        replace(info, condition=rows.get(info.qualified_name))
        for info in _read(
            conn, keys, sql.SQL("NOT c.relispartition AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'")
        )
        if in_scope(info.namespace, info.name, patterns, exclude)
    )


def table_info(
    conn: psycopg.Connection[Any],
    namespace: str,
    name: str,
    keys: Mapping[str, Sequence[str]],
    rows: Mapping[str, str] = _ALL_ROWS,
) -> TableInfo | None:
    """Returns one table, which may be a partition; None when there is no such ordinary or partitioned table."""
    where = sql.SQL("n.nspname = {} AND c.relname = {} AND c.relkind IN ('r', 'p')")
    found = _read(conn, keys, where.format(sql.Literal(namespace), sql.Literal(name)))
    return replace(found[0], condition=rows.get(found[0].qualified_name)) if found else None


def exists(connection: psycopg.Connection[Any], oid: int) -> bool:
    """Whether there is a table with this OID, under any name."""
    with source_errors("looking a table up"):
        return connection.execute("SELECT FROM pg_catalog.pg_class WHERE oid = %s", (oid,)).rowcount > 0


def names_of(connection: psycopg.Connection[Any], oids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Returns the present namespace and name of tables by oid; not of those that are gone or have no UTF-8 name."""
    query = sql.SQL(
        "SELECT c.oid::bigint, n.nspname::text, c.relname::text FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY({}::bigint[]::oid[]) AND {}"
    ).format(sql.Literal(list(oids)), readable(connection, "n.nspname", "c.relname"))
    with source_errors("looking a table up"):
        return {oid: (namespace, name) for oid, namespace, name in connection.execute(query).fetchall()}


def unlogged(connection: psycopg.Connection[Any], tables: Iterable[TableInfo]) -> list[str]:
    """Returns ``schema.table`` of those tables that were ordinary ones and are unlogged now."""
    names = {each.oid: each.qualified_name for each in tables}
    with source_errors("looking for unlogged tables"):
        rows = connection.execute(
            "SELECT oid::bigint FROM pg_catalog.pg_class WHERE oid = ANY(%s) AND relpersistence = 'u'", (list(names),)
        ).fetchall()
    return sorted(names[oid] for (oid,) in rows)


def find_others(
    conn: psycopg.Connection[Any], patterns: Sequence[str], exclude: Sequence[str]
) -> tuple[OtherRelation, ...]:
    """Returns relations that the patterns name but that cannot be captured: views, foreign tables, partitions …

    ``explicit`` says whether a pattern spells the name out, or has a ``*`` that happens to reach it.
    """
    query = sql.SQL(_OTHERS).format(
        own=readable(conn, "n.nspname", "c.relname"), root=readable(conn, "rn.nspname", "r.relname")
    )
    with source_errors("reading the catalog"):
        rows = conn.execute(query).fetchall()
    found = []
    for namespace, name, kind, persistence, root in rows:
        if not in_scope(namespace, name, patterns, exclude):
            continue
        what = _with_article("partition" if root else KIND_NAMES[kind])
        if persistence == "u":
            what = "an unlogged table"
        explicit = qualified(namespace, name) in patterns
        found.append(OtherRelation(namespace, name, what, qualified(*root) if root else "", explicit))
    for _, namespace, name, unreadable in unreadable_tables(conn):
        if in_scope(namespace, name, patterns, exclude):
            explicit = qualified(namespace, name) in patterns
            what = f"a table with a name that is not UTF-8 ({unreadable})"
            found.append(OtherRelation(namespace, name, what, "", explicit, unreadable))
    return tuple(found)


def unmatched(patterns: Sequence[str], tables: Sequence[TableInfo]) -> tuple[str, ...]:
    """Returns the patterns that match none of the tables."""
    return tuple(
        pattern
        for pattern in patterns
        if not any(in_scope(each.namespace, each.name, [pattern], ()) for each in tables)
    )


def out_of_line(conn: psycopg.Connection[Any], tables: Iterable[TableInfo]) -> dict[int, bool | None]:
    """Returns by oid whether a table, or a partition of it, holds values stored out of line (TOAST) now.

    The answer is None when nobody can tell, because somebody's DDL has these values locked.
    """
    oids = [each.oid for each in tables]
    try:
        with source_errors("looking for TOAST values"), conn.transaction():
            conn.execute(_SHORT_WAIT)  # a lock may have been taken since pg_locks was read
            rows = conn.execute(_OUT_OF_LINE, (oids,)).fetchall()
    except SourceBusy:
        return dict.fromkeys(oids)
    return {oid: True if has_some else None if is_locked else False for oid, has_some, is_locked in rows}


def _read(
    conn: psycopg.Connection[Any], keys: Mapping[str, Sequence[str]], where: sql.Composable
) -> tuple[TableInfo, ...]:
    if unreadable := [each.oid for each in unreadable_tables(conn)]:
        where = sql.SQL("({}) AND c.oid <> ALL({})").format(where, sql.Literal(unreadable))
    with source_errors("reading the catalog"):
        rows = conn.execute(sql.SQL(_TABLES).format(where=where, index=shown(conn, "x.relname"))).fetchall()
    return tuple(_table(row, keys) for row in rows)


def _table(row: tuple[Any, ...], keys: Mapping[str, Sequence[str]]) -> TableInfo:
    namespace, name, kind, relreplident, columns, toastable, indexes, rows, leaves, unlike, oid, numbers, *others = row
    identity = ReplicaIdentity(relreplident)
    by_role: dict[str, list[Index]] = {"primary": [], "identity": [], "unique": []}
    for index in indexes:
        for role in index["roles"]:
            by_role[role].append(Index(index["name"], tuple(index["columns"]), index["immediate"]))
    primary_key = next(iter(by_role["primary"]), None)
    configured = tuple(keys.get(qualified(namespace, name), ()))
    key, key_source = choose_key(identity, primary_key, next(iter(by_role["identity"]), None), configured, columns)
    unique = tuple(by_role["unique"])
    return TableInfo(
        namespace=namespace,
        name=name,
        kind=kind,
        replica_identity=identity,
        key=key,
        key_source=key_source,
        toastable=tuple(toastable),
        estimated_rows=rows,
        columns=tuple(columns),
        primary_key=primary_key,
        unique_indexes=tuple(index for index in unique if index != primary_key),
        key_is_enforced=key_source != "configured" or any(i.immediate and set(i.columns) <= set(key) for i in unique),
        leaves=tuple((each[0], each[1]) for each in leaves),
        unlike_partitions=tuple((leaf, mend) for leaf, mend in unlike),
        configured_key=configured,
        oid=oid,
        numbers=tuple(numbers),
        unlogged=tuple((leaf, mend) for leaf, mend in others[0]),
        is_as_created=others[1],
    )


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


_SCOPE: Final = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND n.nspname <> '" + OWN_NAMESPACE + "'"

_SHORT_WAIT: Final = "SET LOCAL lock_timeout = '1s'"

# pg_relation_size locks what it measures, so skip locked TOAST tables. DDL and TRUNCATE lock them, LOCK TABLE does not.
_OUT_OF_LINE: Final = f"""
SELECT root::bigint, bool_or(has_some), bool_or(has_some IS NULL)
FROM (
  SELECT root, CASE WHEN c.reltoastrelid = 0 THEN false
    WHEN c.reltoastrelid NOT IN (SELECT relation FROM pg_catalog.pg_locks WHERE locktype = 'relation'
      AND mode = 'AccessExclusiveLock' AND database = (SELECT d.oid FROM pg_catalog.pg_database d
        WHERE d.datname = pg_catalog.current_database()))
    THEN pg_catalog.pg_relation_size(c.reltoastrelid) > 0 END AS has_some
  FROM unnest(%s::oid[]) AS root
  CROSS JOIN LATERAL {with_partitions("root")} t
  JOIN pg_catalog.pg_class c ON c.oid = t.relid) heap
GROUP BY root
"""

# Names are collated as bytes, so that the order is the same on every server. Values of a short varchar or numeric have
# at most 20 bytes, and are never stored out of line: warnings about them would only be noise.
# Nothing is looked up by table in a CTE: that would read all of it for each table, and there may be thousands.
_TABLES: Final = (
    """
WITH chosen AS (
  SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident, c.reltuples, c.reltoastrelid, c.relpersistence,
    c.relfilenode
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE """
    + _SCOPE
    + """ AND c.relkind IN ('r', 'p') AND {where}
), partitioned AS (
  SELECT root.oid, sum(greatest(leaf.reltuples, 0)) AS reltuples, bool_or(leaf.reltoastrelid <> 0) AS has_toast,
    jsonb_agg(jsonb_build_array(n.nspname, leaf.relname) ORDER BY n.nspname, leaf.relname) AS leaves,
    jsonb_agg(jsonb_build_array(n.nspname || '.' || leaf.relname,
      format('ALTER TABLE %I.%I REPLICA IDENTITY %s;', n.nspname, leaf.relname,
        CASE root.relreplident WHEN 'd' THEN 'DEFAULT' WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING'
        ELSE format('USING INDEX %I', twin.relname) END)) ORDER BY n.nspname, leaf.relname)
      FILTER (WHERE leaf.relreplident <> root.relreplident
        OR root.relreplident = 'i' AND twin.indisreplident IS NOT TRUE) AS unlike,
    jsonb_agg(jsonb_build_array(n.nspname || '.' || leaf.relname,
      format('ALTER TABLE %I.%I SET LOGGED;', n.nspname, leaf.relname)) ORDER BY n.nspname, leaf.relname)
      FILTER (WHERE leaf.relpersistence = 'u') AS unlogged,
    bool_and(leaf.relfilenode = leaf.oid) AS is_as_created
  FROM chosen root CROSS JOIN LATERAL """
    + with_partitions("root.oid")
    + """ t
  JOIN pg_catalog.pg_class leaf ON leaf.oid = t.relid
  JOIN pg_catalog.pg_namespace n ON n.oid = leaf.relnamespace
  LEFT JOIN pg_catalog.pg_index top ON top.indrelid = root.oid AND top.indisreplident
  LEFT JOIN LATERAL (SELECT x.relname, i.indisreplident
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
    WHERE i.indrelid = leaf.oid
      AND top.indexrelid IN (SELECT pg_catalog.pg_partition_ancestors(i.indexrelid))) twin ON true
  WHERE root.relkind = 'p' AND leaf.relkind = 'r'
  GROUP BY root.oid
)
SELECT nspname::text, relname::text, relkind::text, relreplident::text, attribute.names,
  CASE WHEN coalesce(partitioned.has_toast, chosen.relkind = 'r' AND chosen.reltoastrelid <> 0)
    THEN attribute.toastable ELSE '{{}}' END,
  (SELECT coalesce(jsonb_agg(jsonb_build_object('name', {index}, 'immediate', i.indimmediate,
      'columns', k.names,
      'roles', array_remove(ARRAY[CASE WHEN i.indisprimary THEN 'primary' END,
        CASE WHEN i.indisreplident THEN 'identity' END, 'unique'], NULL)) ORDER BY x.relname COLLATE "C"), '[]')
   FROM pg_catalog.pg_index i
   JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
   CROSS JOIN LATERAL (
     SELECT array_agg(a.attname::text ORDER BY place) AS names, bool_and(a.attnotnull) AS not_null
     FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS u(attnum, place)
     LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.attnum
     WHERE place <= i.indnkeyatts) k
   WHERE i.indrelid = chosen.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
     AND k.not_null),
  coalesce(partitioned.reltuples, CASE chosen.relkind WHEN 'r' THEN greatest(chosen.reltuples, 0) ELSE 0 END)::bigint,
  coalesce(partitioned.leaves, '[]'), coalesce(partitioned.unlike, '[]'), chosen.oid::bigint, attribute.numbers,
  CASE WHEN chosen.relkind = 'r' AND relpersistence = 'u' THEN jsonb_build_array(jsonb_build_array(
    nspname || '.' || relname, format('ALTER TABLE %I.%I SET LOGGED;', nspname, relname)))
  ELSE coalesce(partitioned.unlogged, '[]') END,
  coalesce(partitioned.is_as_created, chosen.relkind <> 'r' OR chosen.relfilenode = chosen.oid)
FROM chosen LEFT JOIN partitioned ON partitioned.oid = chosen.oid
CROSS JOIN LATERAL (
  SELECT coalesce(array_agg(attname::text ORDER BY attnum), '{{}}') AS names,
    coalesce(array_agg(attname::text ORDER BY attnum) FILTER (WHERE attlen = -1 AND attstorage IN ('x', 'e', 'm')
      AND NOT (atttypid IN (1042, 1043) AND atttypmod BETWEEN 4 AND 9)
      AND NOT (atttypid = 1700 AND atttypmod >= 4 AND ((atttypmod - 4) >> 16) <= 24)), '{{}}') AS toastable,
    coalesce(array_agg(attnum ORDER BY attnum), '{{}}') AS numbers
  FROM pg_catalog.pg_attribute
  WHERE attrelid = chosen.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') attribute
ORDER BY nspname COLLATE "C", relname COLLATE "C"
"""
)

_OTHERS: Final = (
    """
SELECT n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
  CASE WHEN c.relispartition THEN (SELECT ARRAY[rn.nspname::text, r.relname::text] FROM pg_catalog.pg_class r
    JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace
    WHERE r.oid = pg_catalog.pg_partition_root(c.oid) AND {root}) END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE """
    + _SCOPE
    + """ AND {own} AND (c.relkind IN ('v', 'm', 'f', 'S')
  OR c.relkind IN ('r', 'p') AND (c.relispartition OR c.relpersistence <> 'p'))
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""
)
