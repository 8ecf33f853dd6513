"""What ``cdc check`` finds at the replica: names, schemas, rights, and that it is not the source itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.bridge.scope.topics import state_topic
from cdc.bridge.source.connect import connect
from cdc.bridge.source.preflight import Finding
from cdc.bridge.source.slot import identify
from cdc.bridge.source.table import TableInfo
from cdc.contract.patterns import in_scope
from cdc.contract.record import SourceIdentity, TableSchema
from cdc.ops.status.checks import failing
from cdc.sink.postgres.database import open_replica
from cdc.sink.postgres.errors import ELSEWHERE
from cdc.sink.postgres.naming import ReplicaName, ReplicaNaming

_APPLICATION: Final = "cdc check"


def check_replica(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Findings about the replica database; none when the configuration has no sink."""
    findings: list[Finding] = []
    if config.sink is None:
        return findings
    replica = open_replica(config, application_name=_APPLICATION)
    names = _names(config, replica.naming, tables, findings)
    with failing(findings, "connection"):
        found = replica.inspect(list(names.values()), _source(config))
        findings.append(Finding("OK", "connection", found.address))
        findings += [Finding("FAIL", *lack) for lack in found.lacks] or [
            Finding("OK", "rights", f"enough in schemas {', '.join(found.schemas)}")
        ]
        if found.is_standby:
            findings.append(Finding("FAIL", "writes", "none are taken: this is a standby", ELSEWHERE))
        if found.is_source:
            findings += _captured_again(config, names)
    return findings


def _names(
    config: Config, naming: ReplicaNaming, tables: Sequence[TableInfo], findings: list[Finding]
) -> Mapping[str, ReplicaName]:
    """Replica tables by source table; names that cannot be are findings."""
    names = {}
    for info in tables:
        with failing(findings, f"table {info.qualified_name}"):
            topic = state_topic(config, info.namespace, info.name)
            schema = TableSchema("", info.namespace, info.name, topic, key=info.key, columns=())
            names[info.qualified_name] = naming.name(schema)
    return names


def _source(config: Config) -> SourceIdentity | None:
    # a source that is down has been told of already
    with contextlib.suppress(CdcError), connect(config.source.connection(), application_name=_APPLICATION) as original:
        return identify(original)
    return None


def _captured_again(config: Config, names: Mapping[str, ReplicaName]) -> list[Finding]:
    """Inside the source database, replica tables must not be captured themselves, let alone be the source tables."""
    return [
        Finding(
            "FAIL",
            f"table {table}",
            f"its replica {name} would lie in the source database and be captured itself",
            "set sink.dsn to another database, or sink.schema to one that source.tables does not name",
        )
        for table, name in names.items()
        if in_scope(*name, config.source.tables, config.source.exclude)
    ]
