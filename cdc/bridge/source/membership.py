"""Reads what carries each table in the publication, to detect a table that was out of the publication for a moment.

``ALTER PUBLICATION … DROP TABLE`` and ``ADD TABLE`` make another row of ``pg_publication_rel``. A publication that is
dropped and made again has another oid. When its options change, its row has another ``xmin``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.readable import shown
from cdc.bridge.source.table import TableInfo
from cdc.contract.membership import Membership

_NAMESPACES_SINCE: Final = 150000
"""The first version with ``pg_publication_namespace``, for FOR TABLES IN SCHEMA."""


def memberships(conn: psycopg.Connection[Any], publication: str, tables: Sequence[TableInfo]) -> dict[str, Membership]:
    """Returns what carries these tables, by ``schema.table``; without tables that nothing carries."""
    with source_errors("reading publications"):
        row = conn.execute(
            "SELECT oid::bigint, xmin::text, pubowner::bigint, puballtables FROM pg_catalog.pg_publication"
            " WHERE pubname = %s",
            (publication,),
        ).fetchone()
        if row is None:
            return {}
        oid, version, owner, all_tables = row
        by_table = _entries(conn, "pg_publication_rel", "prrelid", "prpubid", oid)
        by_namespace: dict[str, list[str]] = {}
        if conn.info.server_version >= _NAMESPACES_SINCE:
            name = shown(conn, "n.nspname").as_string(conn)
            by_namespace = _entries(
                conn,
                "pg_publication_namespace",
                f"SELECT {name} FROM pg_catalog.pg_namespace n WHERE n.oid = pnnspid",
                "pnpubid",
                oid,
            )
    found = {}
    for table in tables:
        routes = [*by_table.get(str(table.oid), ()), *by_namespace.get(table.namespace, ())]
        if all_tables:
            routes.append("all tables")
        if routes:
            found[table.qualified_name] = Membership(oid, version, owner, table.oid, tuple(sorted(routes)))
    return found


def publication_oid(conn: psycopg.Connection[Any], publication: str) -> int | None:
    """Returns the oid of a publication; None when there is none of that name."""
    with source_errors("reading publications"):
        row = conn.execute(
            "SELECT oid::bigint FROM pg_catalog.pg_publication WHERE pubname = %s", (publication,)
        ).fetchone()
    return None if row is None else int(row[0])


def _entries(conn: psycopg.Connection[Any], catalog: str, what: str, owner: str, oid: int) -> dict[str, list[str]]:
    entries: dict[str, list[str]] = defaultdict(list)
    query = f"SELECT ({what})::text, oid::text FROM pg_catalog.{catalog} WHERE {owner} = %s"
    for carried, entry in conn.execute(query.encode(), (oid,)):
        entries[carried].append(f"{catalog} {entry}")
    return entries
