"""All checks of ``cdc check``, by part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from cdc.base.config import Config
from cdc.bridge.source.preflight import Finding
from cdc.ops.status.checks import check_kafka, check_program, check_source
from cdc.ops.status.replica_checks import check_replica
from cdc.ops.status.standby_checks import check_standby


def check_all(config: Config) -> dict[str, Sequence[Finding]]:
    """Findings by part: program, source with its standby, Kafka, replica. A part that is down is a finding."""
    source, tables = check_source(config)
    return {
        "cdc": check_program(),
        "source": [*source, *check_standby(config, tables)],
        "kafka": check_kafka(config, tables),
        "sink": check_replica(config, tables),
    }


def as_document(parts: Mapping[str, Sequence[Finding]]) -> dict[str, Any]:
    """Plain values: ``ok``, and ``findings`` with part, level, subject, text and remedy."""
    findings = [{"part": part, **dataclasses.asdict(each)} for part, found in parts.items() for each in found]
    return {"ok": not any(each["level"] == "FAIL" for each in findings), "findings": findings}
