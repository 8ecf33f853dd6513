"""What ``cdc check`` looks at: source, Kafka, replica. A part that is down is a finding like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from cdc.app.tables import state_topic, topic_specifications
from cdc.capture.catalog import find_others, find_tables, in_scope, unmatched
from cdc.capture.connect import connect, describe, source_errors
from cdc.capture.copy_both import CopyBoth
from cdc.capture.preflight import Finding, check_server, check_slot
from cdc.capture.preflight_tables import check_publication, check_scope, check_table
from cdc.capture.publication import inspect_publication
from cdc.capture.server import server_facts, table_rights
from cdc.capture.slot import identify, inspect_slot
from cdc.capture.table import TableInfo, quoted
from cdc.config import Config, SinkConfig
from cdc.errors import CdcError
from cdc.publish.topics import TopicAdmin

_APPLICATION: Final = "cdc check"


@contextlib.contextmanager
def failing(findings: list[Finding], subject: str) -> Iterator[None]:
    """Turn an error in the block into a finding, and go on."""
    try:
        yield
    except CdcError as error:
        findings.append(Finding.failure(subject, error))


def check_source(config: Config) -> tuple[list[Finding], tuple[TableInfo, ...]]:
    """Findings about the source, and the tables in scope as far as they could be read."""
    findings: list[Finding] = []
    tables: tuple[TableInfo, ...] = ()
    source = config.source
    with failing(findings, "connection"), connect(source.connection(), application_name=_APPLICATION) as conn:
        findings.append(Finding("OK", "connection", describe(source.connection())))
        facts = server_facts(conn)
        findings += check_server(facts)
        findings += check_slot(facts, source.slot, inspect_slot(conn, source.slot))
        if facts.can_replicate and facts.senders_used < facts.senders_max:
            findings += _walsender(config)
        tables = find_tables(conn, source.tables, source.exclude, source.keys)
        others = find_others(conn, source.tables, source.exclude)
        findings += check_scope(tables, others, unmatched(source.tables, tables))
        rights = table_rights(conn, tables)
        for info in tables:
            findings += check_table(info, rights[info.qualified_name], facts.role)
        if tables:
            findings += check_publication(
                inspect_publication(conn, source.publication),
                name=source.publication,
                mode=source.publication_mode,
                tables=tables,
                rights=rights,
                facts=facts,
            )
    return findings, tables


def _walsender(config: Config) -> list[Finding]:
    """Whether a walsender really takes us: pg_hba.conf and connection limits have a say, too."""
    findings: list[Finding] = []
    with failing(findings, "walsender connection"):
        session = CopyBoth(config.source.connection(), application_name=_APPLICATION)
        try:
            system = session.identify()
        finally:
            session.close()
        findings.append(
            Finding("OK", "walsender connection", f"timeline {system.timeline}, WAL up to {system.flush_lsn}")
        )
    return findings


def check_kafka(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Findings about the brokers and the topics of these tables."""
    findings: list[Finding] = []
    nameable: list[TableInfo] = []
    for info in tables:
        with failing(findings, f"table {info.qualified_name}"):
            state_topic(config, info.namespace, info.name)
            nameable.append(info)
    with failing(findings, "brokers"):
        admin = TopicAdmin(config.kafka.client_options())
        existing = admin.partitions()
        findings.append(Finding("OK", "brokers", f"{config.kafka.bootstrap} answers"))
        specifications = topic_specifications(config, nameable)
        drifts = admin.drift(specifications)
        for drift in drifts:
            text = f"has {drift.setting}={drift.found}, the configuration says {drift.wanted}"
            findings.append(Finding("FAIL" if drift.is_fatal else "WARN", f"topic {drift.topic}", text, drift.remedy))
        drifted = {drift.topic for drift in drifts}
        for each in specifications:
            if each.name not in existing:
                findings.append(Finding("OK", f"topic {each.name}", f"will be made with {each.partitions} partitions"))
            elif each.name not in drifted:
                findings.append(Finding("OK", f"topic {each.name}", "as the configuration says"))
    return findings


def check_replica(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Findings about the replica database; none when the configuration has no sink."""
    findings: list[Finding] = []
    sink = config.sink
    if sink is None:
        return findings
    with (
        failing(findings, "connection"),
        connect(sink.connection(), application_name=_APPLICATION, section="sink") as conn,
        source_errors("reading the replica's catalog"),
    ):
        findings.append(Finding("OK", "connection", describe(sink.connection())))
        findings += _namespaces(conn, sink, tables)
        findings += _replica_tables(conn, sink, tables)
        findings += _not_the_source(conn, config, tables)
    return findings


def replica_name(sink: SinkConfig, info: TableInfo) -> tuple[str, str]:
    """Namespace and name of the replica table of a source table."""
    if mapped := sink.tables.get(info.qualified_name):
        namespace, _, name = mapped.partition(".")
        return namespace, name
    return sink.schema_name or info.namespace, sink.prefix + info.name


def _namespaces(conn: psycopg.Connection[Any], sink: SinkConfig, tables: Sequence[TableInfo]) -> list[Finding]:
    wanted = sorted({"cdc", *(replica_name(sink, info)[0] for info in tables)})
    rows = conn.execute(
        "SELECT wanted, oid IS NOT NULL, has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE'),"
        " has_database_privilege(current_database(), 'CREATE'), current_database(), current_user"
        " FROM unnest(%s::text[]) AS wanted LEFT JOIN pg_namespace ON nspname = wanted ORDER BY 1",
        (wanted,),
    ).fetchall()
    findings = []
    for namespace, exists, usable, may_create, database, role in rows:
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


def _replica_tables(conn: psycopg.Connection[Any], sink: SinkConfig, tables: Sequence[TableInfo]) -> list[Finding]:
    names = [replica_name(sink, info) for info in tables]
    rows = conn.execute(
        "SELECT n.nspname, c.relname, current_user, pg_has_role(c.relowner, 'USAGE')"
        " FROM unnest(%s::text[], %s::text[]) AS wanted (namespace, name)"
        " JOIN pg_namespace n ON n.nspname = wanted.namespace"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name",
        ([namespace for namespace, _ in names], [name for _, name in names]),
    ).fetchall()
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


def _not_the_source(conn: psycopg.Connection[Any], config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Inside the source database, replica tables must not be captured themselves, let alone be the source tables."""
    assert config.sink is not None
    source = config.source
    # a source that is down has been told of already
    with contextlib.suppress(CdcError), connect(source.connection(), application_name=_APPLICATION) as original:
        if identify(original) == identify(conn):
            return [
                Finding(
                    "FAIL",
                    f"table {info.qualified_name}",
                    f"its replica {'.'.join(target)} would lie in the source database and be captured itself",
                    "set sink.dsn to another database, or sink.schema to one that source.tables does not name",
                )
                for info in tables
                if in_scope(*(target := replica_name(config.sink, info)), source.tables, source.exclude)
            ]
    return []
