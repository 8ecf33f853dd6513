"""SQL that finds partitions in the catalog alone.

``pg_partition_tree`` says the same, but locks every partition, and so waits while somebody's DDL holds one of them.
"""

from __future__ import annotations


def with_partitions(table: str) -> str:
    """Returns a subquery: the oids of a table and all partitions below it, as ``relid``; not tables that inherit.

    Args:
        table: an SQL expression for the table's oid.
    """
    return f"""(
  WITH RECURSIVE tree (relid) AS (
    SELECT ({table})::pg_catalog.oid
    UNION ALL
    SELECT child.oid FROM tree
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.relid AND NOT i.inhdetachpending
    JOIN pg_catalog.pg_class child ON child.oid = i.inhrelid AND child.relispartition
  ) SELECT relid FROM tree)"""
