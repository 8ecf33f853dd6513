"""Partitions, read from the catalog alone.

``pg_partition_tree`` says the same, but locks every partition, and so waits while somebody's DDL holds one of them.
"""

from __future__ import annotations


def with_partitions(table: str) -> str:
    """SQL for a subquery: the oid of a table and of everything below it, as ``relid``; tables that inherit are not.

    Args:
        table: an SQL expression for its oid.
    """
    return f"""(
  WITH RECURSIVE tree (relid) AS (
    SELECT ({table})::pg_catalog.oid
    UNION ALL
    SELECT child.oid FROM tree
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.relid AND NOT i.inhdetachpending
    JOIN pg_catalog.pg_class child ON child.oid = i.inhrelid AND child.relispartition
  ) SELECT relid FROM tree)"""
