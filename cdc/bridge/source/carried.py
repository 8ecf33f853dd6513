"""Reads what a publication carries, from the catalog alone.

The view ``pg_publication_tables`` says the same. But from PostgreSQL 16 on, it opens every table, and so waits while
somebody's DDL holds one of them. That may take hours, even if the table has nothing to do with who asks.

What follows is what ``pg_get_publication_tables`` does in ``src/backend/catalog/pg_publication.c`` of PostgreSQL 14 to
18:

- FOR ALL TABLES, with ``publish_via_partition_root`` off: ordinary tables, including partitions. With the option on:
  roots, and ordinary tables that are not partitions.
- Otherwise: the tables that are named, and those in the schemas that are named. With the option off, a partitioned
  table's leaves stand for it, whatever they are. With it on, what lies below another table of the list is left out.
- In a schema, and FOR ALL TABLES, only permanent tables count, and nothing that ``initdb`` made.
- A column list counts if the table is not also carried by FOR ALL TABLES or a schema.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from cdc.bridge.source.readable import readable

_LISTS_SINCE: Final = 150000
"""The first version with column lists, row filters and FOR TABLES IN SCHEMA."""

_PUBLISHABLE: Final = "c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384"
"""16384 is ``FirstNormalObjectId``: what ``initdb`` makes has smaller oids."""

_IN_SCHEMAS: Final = f"""
  UNION
  SELECT c.oid, c.relkind FROM publication p
  JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid
  JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid
  WHERE {_PUBLISHABLE}"""

_NARROWED: Final = """
  SELECT c.oid,
    CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_publication_namespace s
      WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace) THEN r.prattrs::int2[] END,
    coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false)
  FROM publication p
  JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
  JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
  WHERE r.prqual IS NOT NULL OR r.prattrs IS NOT NULL"""

_NEVER_NARROWED: Final = """
  SELECT NULL::oid, NULL::int2[], false WHERE false"""


_WITH_NAMES: Final = """
    JOIN pg_catalog.pg_class c USING (oid) JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"""


def state_query(conn: psycopg.Connection[Any]) -> str:
    """Returns a query for one publication, whose only parameter is its name. It has no row if there is none.

    Its columns are those of ``PublicationState`` without the name. Each of the four operations is a column, a table is
    an array of schema and name, and ``columns`` are arrays of schema, name and an array. Relations and columns whose
    names cannot be sent to us are left out; the last column says whether there are any.
    """
    has_lists = conn.info.server_version >= _LISTS_SINCE
    is_told, column_is_told = (
        readable(conn, *names).as_string(conn) for names in (("n.nspname", "c.relname"), ("a.attname",))
    )
    return f"""
WITH RECURSIVE publication AS (
  SELECT * FROM pg_catalog.pg_publication WHERE pubname = %s
), listed (oid, relkind) AS (
  SELECT c.oid, c.relkind FROM publication p
  JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
  JOIN pg_catalog.pg_class c ON c.oid = r.prrelid{_IN_SCHEMAS if has_lists else ""}
), below (oid, relkind) AS (
  SELECT c.oid, c.relkind FROM listed
  JOIN pg_catalog.pg_inherits i ON i.inhparent = listed.oid AND NOT i.inhdetachpending
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
  WHERE listed.relkind = 'p'
  UNION
  SELECT c.oid, c.relkind FROM below
  JOIN pg_catalog.pg_inherits i ON i.inhparent = below.oid AND NOT i.inhdetachpending
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
  WHERE below.relkind = 'p'
), carried (oid) AS (
  SELECT c.oid FROM publication p
  JOIN pg_catalog.pg_class c ON {_PUBLISHABLE}
  WHERE p.puballtables AND CASE WHEN p.pubviaroot THEN NOT c.relispartition ELSE c.relkind = 'r' END
  UNION ALL
  (SELECT l.oid FROM publication p CROSS JOIN listed l WHERE p.pubviaroot EXCEPT SELECT oid FROM below)
  UNION ALL
  SELECT leaf.oid FROM publication p
  CROSS JOIN (SELECT oid, relkind FROM listed UNION SELECT oid, relkind FROM below) leaf
  WHERE NOT p.pubviaroot AND leaf.relkind <> 'p'
), narrowed (oid, numbers, has_generated) AS ({_NARROWED if has_lists else _NEVER_NARROWED}
)
SELECT pg_catalog.pg_has_role(pubowner, 'USAGE'), puballtables, pubviaroot,
  pubinsert, pubupdate, pubdelete, pubtruncate,
  ARRAY(SELECT ARRAY[n.nspname::text, c.relname::text] FROM carried {_WITH_NAMES} WHERE {is_told}),
  ARRAY(SELECT ARRAY[n.nspname::text, c.relname::text] FROM narrowed {_WITH_NAMES} WHERE {is_told}),
  (SELECT coalesce(jsonb_agg(jsonb_build_array(n.nspname, c.relname, ARRAY(
      SELECT a.attname FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND {column_is_told}
        AND CASE WHEN narrowed.numbers IS NOT NULL THEN a.attnum = ANY (narrowed.numbers)
          ELSE a.attgenerated = '' OR a.attgenerated = 's' AND narrowed.has_generated END))), '[]')
    FROM narrowed JOIN carried USING (oid) {_WITH_NAMES} WHERE {is_told}),
  EXISTS (SELECT FROM carried {_WITH_NAMES}
    WHERE NOT ({is_told}) OR EXISTS (SELECT FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND NOT ({column_is_told})))
FROM publication
"""
