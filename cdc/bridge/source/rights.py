"""Finds what our role may do with the tables, and the commands that give it what is missing.

A table must be read as well as published: for rows from before the slot, and for columns that the stream leaves out. If
a policy hides rows, reading fails (``row_security`` is off), because a hidden row would be taken for a deleted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.base.table_names import qualified
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.table import TableInfo, Unusable, quoted


@dataclass(frozen=True, slots=True)
class TableRights:
    """What our role may do with one table.

    Attributes:
        filtered: whether a row-level security policy hides rows from us.
        owned: whether we may add the table to a publication.
    """

    can_use_namespace: bool
    can_select: bool
    filtered: bool
    owned: bool


_RIGHTS: Final = """
SELECT n.nspname::text, c.relname::text, has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
  row_security_active(c.oid), pg_has_role(c.relowner, 'USAGE')
FROM unnest(%s::text[], %s::text[]) AS wanted (namespace, name)
JOIN pg_namespace n ON n.nspname = wanted.namespace
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
"""

_SECURED: Final = """
SELECT n.nspname::text, c.relname::text FROM unnest(%s::text[], %s::text[]) AS wanted (namespace, name)
JOIN pg_namespace n ON n.nspname = wanted.namespace
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
WHERE c.relrowsecurity ORDER BY 1, 2
"""


def table_rights(conn: psycopg.Connection[Any], tables: Sequence[TableInfo]) -> dict[str, TableRights]:
    """Returns our rights by qualified name, on the tables and on the partitions that hold their rows."""
    with source_errors("reading privileges"):
        rows = conn.execute(_RIGHTS, _names(tables)).fetchall()
    return {qualified(namespace, name): TableRights(*rights) for namespace, name, *rights in rows}


def secured_tables(conn: psycopg.Connection[Any], tables: Sequence[TableInfo]) -> list[str]:
    """Returns the qualified names of those tables that have row-level security, for any role."""
    with source_errors("reading policies"):
        return [qualified(*name) for name in conn.execute(_SECURED, _names(tables)).fetchall()]


def heaps(info: TableInfo) -> list[tuple[str, str]]:
    """Returns namespace and name of the table, then of its partitions, as a backfill reads each one by itself."""
    return [(info.namespace, info.name), *info.leaves]


def why_unreadable(info: TableInfo, rights: Mapping[str, TableRights], role: str) -> list[Unusable]:
    """Returns what keeps ``role`` from reading the table, with the commands that allow it; nothing when it can."""
    named = [(heap, found) for heap in heaps(info) if (found := rights.get(qualified(*heap))) is not None]
    closed = dict.fromkeys(namespace for (namespace, _), found in named if not found.can_use_namespace)
    unread = [quoted(*heap) for heap, found in named if not found.can_select]
    grants = [f"GRANT USAGE ON SCHEMA {quoted(namespace)} TO {quoted(role)};" for namespace in closed]
    grants += [f"GRANT SELECT ON {', '.join(unread)} TO {quoted(role)};"] if unread else []
    troubles = []
    if grants:
        troubles.append(Unusable(f"table {info.qualified_name} may not be read by role {role}", " ".join(grants)))
    if any(found.filtered for _, found in named):
        troubles.append(
            Unusable(
                f"table {info.qualified_name} hides rows from role {role} by row-level security: "
                "they would be missing from the topic",
                f"ALTER ROLE {quoted(role)} BYPASSRLS;",
            )
        )
    return troubles


def _names(tables: Sequence[TableInfo]) -> tuple[list[str], list[str]]:
    names = [heap for info in tables for heap in heaps(info)]
    return [namespace for namespace, _ in names], [name for _, name in names]
