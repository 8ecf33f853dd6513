"""What ``cdc check`` finds at the replica: names, schemas, rights, and that it is not the source itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import psycopg

from cdc.config import Config
from cdc.errors import CdcError
from cdc.record import TableSchema
from cdc.scope.topics import state_topic
from cdc.sink.errors import replica_errors
from cdc.sink.grants import lacking
from cdc.sink.naming import CONTROL_SCHEMA, ReplicaName, ReplicaNaming
from cdc.sink.session import replica_engine
from cdc.source.catalog import in_scope
from cdc.source.connect import connect, describe
from cdc.source.preflight import Finding
from cdc.source.slot import identify
from cdc.source.table import TableInfo
from cdc.status.checks import failing

_APPLICATION: Final = "cdc check"


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
        schemas = sorted({CONTROL_SCHEMA, *(name.schema for name in names.values())})
        lacks = lacking(conn, schemas, list(names.values()))
        findings += [Finding("FAIL", *lack) for lack in lacks] or [
            Finding("OK", "rights", f"enough in schemas {', '.join(schemas)}")
        ]
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
