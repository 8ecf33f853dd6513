"""What ``cdc check`` finds at the replica: names, schemas, rights, and that it is not the source itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import psycopg

from cdc.app.check_parts import failing
from cdc.app.tables import state_topic
from cdc.capture.catalog import in_scope
from cdc.capture.connect import connect, describe
from cdc.capture.preflight import Finding
from cdc.capture.slot import identify
from cdc.capture.table import TableInfo, quoted
from cdc.config import Config
from cdc.errors import CdcError
from cdc.record import TableSchema
from cdc.sink.control import SCHEMA
from cdc.sink.errors import replica_errors
from cdc.sink.naming import ReplicaName, ReplicaNaming
from cdc.sink.session import replica_engine

_APPLICATION: Final = "cdc check"

_NAMESPACES: Final = """
SELECT wanted, oid IS NOT NULL, has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE'),
  has_database_privilege(current_database(), 'CREATE'), current_database(), current_user
FROM unnest(%s::text[]) AS wanted LEFT JOIN pg_namespace ON nspname = wanted ORDER BY 1
"""

_TABLES: Final = """
SELECT n.nspname, c.relname, current_user, pg_has_role(c.relowner, 'USAGE')
FROM unnest(%s::text[], %s::text[]) AS wanted (namespace, name)
JOIN pg_namespace n ON n.nspname = wanted.namespace
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
"""


def check_replica(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Findings about the replica database; none when the configuration has no sink."""
    findings: list[Finding] = []
    if config.sink is None:
        return findings
    arguments = config.sink.connection()
    names = _names(config, tables, findings)
    engine = replica_engine(arguments, application_name=_APPLICATION)
    with (
        failing(findings, "connection"),
        engine.connect() as connection,
        replica_errors("reading its catalog"),
    ):
        findings.append(Finding("OK", "connection", describe(arguments)))
        conn = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
        findings += _namespaces(conn, sorted({SCHEMA, *(name.schema for name in names.values())}))
        findings += _owners(conn, list(names.values()))
        findings += _not_the_source(conn, config, names)
    return findings


def _names(config: Config, tables: Sequence[TableInfo], findings: list[Finding]) -> Mapping[str, ReplicaName]:
    """Replica tables by source table; names that cannot be are findings."""
    sink = config.sink
    assert sink is not None
    naming = ReplicaNaming(sink.schema_name, sink.prefix, sink.tables)
    names = {}
    for info in tables:
        with failing(findings, f"table {info.qualified_name}"):
            topic = state_topic(config, info.namespace, info.name)
            schema = TableSchema("", info.namespace, info.name, topic, key=info.key, columns=())
            names[info.qualified_name] = naming.name(schema)
    return names


def _namespaces(conn: psycopg.Connection[Any], wanted: Sequence[str]) -> list[Finding]:
    findings = []
    for namespace, exists, usable, may_create, database, role in conn.execute(_NAMESPACES, (wanted,)):
        subject = f"schema {namespace}"
        if exists and not usable:
            remedy = f"GRANT USAGE, CREATE ON SCHEMA {quoted(namespace)} TO {quoted(role)};"
            findings.append(Finding("FAIL", subject, f"role {role} may not create tables in it", remedy))
        elif not exists and not may_create:
            remedy = f"GRANT CREATE ON DATABASE {quoted(database)} TO {quoted(role)};"
            findings.append(Finding("FAIL", subject, f"is missing, and role {role} may not make it", remedy))
        else:
            findings.append(Finding("OK", subject, "is there" if exists else "will be made"))
    return findings


def _owners(conn: psycopg.Connection[Any], names: Sequence[ReplicaName]) -> list[Finding]:
    rows = conn.execute(_TABLES, ([name.schema for name in names], [name.table for name in names])).fetchall()
    return [
        Finding(
            "FAIL",
            f"table {namespace}.{name}",
            f"role {role} does not own it, and so cannot follow the source's new columns",
            f"ALTER TABLE {quoted(namespace, name)} OWNER TO {quoted(role)};",
        )
        for namespace, name, role, owned in rows
        if not owned
    ]


def _not_the_source(conn: psycopg.Connection[Any], config: Config, names: Mapping[str, ReplicaName]) -> list[Finding]:
    """Inside the source database, replica tables must not be captured themselves, let alone be the source tables."""
    source = config.source
    # a source that is down has been told of already
    with contextlib.suppress(CdcError), connect(source.connection(), application_name=_APPLICATION) as original:
        if identify(original) == identify(conn):
            return [
                Finding(
                    "FAIL",
                    f"table {table}",
                    f"its replica {name} would lie in the source database and be captured itself",
                    "set sink.dsn to another database, or sink.schema to one that source.tables does not name",
                )
                for table, name in names.items()
                if in_scope(*name, source.tables, source.exclude)
            ]
    return []
