"""The rights of the sink's role in the replica: the SQL that grants them, and the ones that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg

from cdc.base.table_names import qualified
from cdc.contract.pgtypes import quote_identifier
from cdc.sink.postgres.control import CONTROL_SCHEMA
from cdc.sink.replica import Lack, ReplicaName

_DATABASE: Final = """
SELECT current_database(), current_user, has_database_privilege(current_database(), 'TEMPORARY'),
  has_database_privilege(current_database(), 'CREATE')
"""

_SCHEMAS: Final = """
SELECT wanted, oid IS NOT NULL, has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
FROM unnest(%s::text[]) AS wanted LEFT JOIN pg_namespace ON nspname = wanted ORDER BY 1
"""

_TABLES: Final = """
SELECT n.nspname, c.relname, pg_has_role(c.relowner, 'USAGE'), has_schema_privilege(n.oid, 'USAGE'),
  array(SELECT wanted FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) AS wanted
        WHERE NOT has_table_privilege(c.oid, wanted))
FROM unnest(%s::text[], %s::text[]) AS wanted (namespace, name)
JOIN pg_namespace n ON n.nspname = wanted.namespace
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name ORDER BY 1, 2
"""


def sink_grants(role: str, database: str, schemas: Iterable[str]) -> list[str]:
    """Returns SQL for the replica's owner. It creates the schemas; the sink then creates its tables in them itself.

    Args:
        role: the role that the sink connects as.
        database: the replica.
        schemas: the schemas of the replica tables; the sink's own is added.
    """
    name = quote_identifier(role)
    return [
        f"GRANT CONNECT, TEMPORARY ON DATABASE {quote_identifier(database)} TO {name};",
        *(line for schema in sorted({CONTROL_SCHEMA, *schemas}) for line in (_make(schema), _open(schema, role))),
    ]


def lacking(conn: psycopg.Connection[Any], schemas: Iterable[str], tables: Sequence[ReplicaName] = ()) -> list[Lack]:
    """Returns the rights that the sink's role lacks: to stage rows, create tables in the schemas and alter the tables.

    Args:
        conn: a connection to the replica; nothing is changed.
        schemas: the schemas of replica tables, or the sink's own.
        tables: replica tables, which may not exist yet.
    """
    row = conn.execute(_DATABASE).fetchone()
    assert row is not None
    database, role, may_stage, may_create = row
    names = quote_identifier(database), quote_identifier(role)
    lacks = []
    if not may_stage:
        grant = "GRANT TEMPORARY ON DATABASE {} TO {};".format(*names)
        lacks.append(Lack(f"database {database}", f"role {role} may not make temporary tables, to stage rows", grant))
    for schema, exists, usable in conn.execute(_SCHEMAS, (sorted(set(schemas)),)).fetchall():
        if exists and not usable:
            text = f"role {role} may not use it and create tables in it"
            lacks.append(Lack(f"schema {schema}", text, _open(schema, role)))
        elif not exists and not may_create:
            text = f"is missing, and role {role} may not make it"
            lacks.append(Lack(f"schema {schema}", text, f"{_make(schema)} {_open(schema, role)}"))
    wanted = [each.schema for each in tables], [each.table for each in tables]
    for schema, table, owned, usable, forbidden in conn.execute(_TABLES, wanted).fetchall():
        subject, quoted = f"table {qualified(schema, table)}", f"{quote_identifier(schema)}.{quote_identifier(table)}"
        if not owned and usable:
            alter = f"ALTER TABLE {quoted} OWNER TO {names[1]};"
            text = f"role {role} does not own it, and so cannot follow the source's new columns"
            lacks.append(Lack(subject, text, alter))
        if owned and usable and forbidden:  # REVOKE works on an owner, too
            rights = ", ".join(forbidden)
            grant = f"GRANT {rights} ON {quoted} TO {names[1]};"
            lacks.append(Lack(subject, f"role {role} owns it, and may not {rights}", grant))
    return lacks


def _make(schema: str) -> str:
    return f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(schema)};"


def _open(schema: str, role: str) -> str:
    return f"GRANT USAGE, CREATE ON SCHEMA {quote_identifier(schema)} TO {quote_identifier(role)};"
