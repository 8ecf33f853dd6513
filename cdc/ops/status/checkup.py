"""All checks of ``cdc check``, by part, and the checks of the replica."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cdc.base.config import Config, SinkConfig
from cdc.base.errors import CdcError
from cdc.bridge.scope.topics import state_topic
from cdc.bridge.source.connect import connect
from cdc.bridge.source.preflight import Finding
from cdc.bridge.source.slot import identify
from cdc.bridge.source.table import TableInfo
from cdc.contract.patterns import in_scope
from cdc.contract.record import SourceIdentity, TableSchema
from cdc.ops.status.checks import check_kafka, check_program, check_source, failing
from cdc.ops.status.registry_checks import check_registry
from cdc.ops.status.standby_checks import check_standby
from cdc.sink.dialects import open_replica
from cdc.sink.replica import ReplicaName, ReplicaNaming

_APPLICATION: Final = "cdc check"


def check_replica(config: Config, tables: Sequence[TableInfo]) -> list[Finding]:
    """Returns findings about the replica database; none if the configuration has no sink."""
    findings: list[Finding] = []
    if config.sink is None:
        return findings
    replica = open_replica(config, application_name=_APPLICATION)
    names = _names(config, replica.naming, tables, findings)
    if tables:  # else the source did not say what is captured
        findings += _without_table(config.sink, names)
    with failing(findings, "connection"):
        found = replica.inspect(list(names.values()), _source(config))
        findings.append(Finding("OK", "connection", found.address))
        findings += [Finding("FAIL", *lack) for lack in found.lacks] or [
            Finding("OK", "rights", f"enough in schemas {', '.join(found.schemas)}")
        ]
        if found.standby_remedy:
            findings.append(Finding("FAIL", "writes", "refused: this server is a standby", found.standby_remedy))
        if found.is_source:
            findings += _captured_again(config, names)
    return findings


def _names(
    config: Config, naming: ReplicaNaming, tables: Sequence[TableInfo], findings: list[Finding]
) -> Mapping[str, ReplicaName]:
    """Returns the replica tables by source table, and adds a finding for each name that is impossible."""
    names = {}
    for info in tables:
        with failing(findings, f"table {info.qualified_name}"):
            topic = state_topic(config, info.namespace, info.name)
            schema = TableSchema("", info.namespace, info.name, topic, key=info.key, columns=())
            names[info.qualified_name] = naming.name(schema)
    return names


def _without_table(sink: SinkConfig, names: Mapping[str, ReplicaName]) -> list[Finding]:
    """Returns a warning for each table that options of ``sink`` name and that is not captured, maybe misspelled."""
    named = {"sink.tables": sink.tables.keys() - names, "sink.quarantine": sink.quarantine.keys() - names}
    return [
        Finding("WARN", option, f"{table} is not captured, so this says nothing", f"correct {option} (case matters)")
        for option, absent in named.items()
        for table in sorted(absent)
    ]


def _source(config: Config) -> SourceIdentity | None:
    # check_source has already reported a source that is down
    with contextlib.suppress(CdcError), connect(config.source.connection(), application_name=_APPLICATION) as original:
        return identify(original)
    return None


def _captured_again(config: Config, names: Mapping[str, ReplicaName]) -> list[Finding]:
    """Returns a failure for each replica table in the source database that the bridge would capture.

    Its changes would be published and applied again. The replica table might even be the source table itself.
    """
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


def check_all(config: Config) -> dict[str, Sequence[Finding]]:
    """Run all checks, and return the findings by part: program, source and its standby, Kafka, registry, replica."""
    source, tables = check_source(config)
    return {
        "cdc": check_program(),
        "source": [*source, *check_standby(config, tables)],
        "kafka": check_kafka(config, tables),
        "registry": check_registry(config, tables),
        "sink": check_replica(config, tables),
    }


def as_document(parts: Mapping[str, Sequence[Finding]]) -> dict[str, Any]:
    """Returns plain values: ``ok``, and ``findings`` with part, level, subject, text and remedy."""
    findings = [{"part": part, **dataclasses.asdict(each)} for part, found in parts.items() for each in found]
    return {"ok": not any(each["level"] == "FAIL" for each in findings), "findings": findings}
