"""Which comparison a run is: everything that decides what is compared, by the names that a person knows.

A run that is resumed must be the same comparison, or the parts would be of two; an option that is not told here must
not change what is compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError

BRIDGE: Final = "the bridge"
_SHOWN: Final = 100


def identity_of(job: ReconcileJob, source: str, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """What this run compares.

    Args:
        job: the run.
        source: system identifier and timeline of the server.
        topic_ids: Kafka's own, by topic.
    """
    replica = job.replica
    told = {
        "the source": f"{job.source.database} of server {source}",
        BRIDGE: bridge_of(job),
        "the tables": ", ".join(each.qualified_name for each in job.tables),
        "--where": job.where or "",
        "--columns": ", ".join(name for names in job.columns.values() for name in names),
        "--passes": str(job.passes),
        "--replica": "" if replica is None else f"{replica.host}:{replica.port}/{replica.database}",
        "--state": job.state or "",
    }
    for name, path in job.keys.items():
        told[f"the keys of {name}"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    for table in job.tables:
        told[f"the topic of {table.qualified_name}"] = topic_ids[table.topic]
        told[f"the definition of {table.qualified_name}"] = table.model_dump_json()
    return told


def bridge_of(job: ReconcileJob) -> str:
    """Whose topics are compared."""
    return f"{job.stream.name}, slot {job.stream.slot}"


def refuse_another(begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """See that a run goes on with the comparison that it began.

    Raises:
        JobError: it would be another; names what is different.
    """
    differing = [name for name in dict.fromkeys((*begun, *now)) if begun.get(name, "") != now.get(name, "")]
    if differing:
        told = "; ".join(f"{name} was {_shown(begun, name)} and is {_shown(now, name)}" for name in differing)
        raise JobError(
            f"--resume would go on with another comparison than the one that was begun: {told}",
            remedy="give the same options as before, or leave --resume out to begin anew",
        )


def write_identity(path: Path, identity: Mapping[str, str]) -> None:
    """Note it, whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(identity, indent=2), encoding="utf-8")
    unfinished.replace(path)


def read_identity(path: Path) -> dict[str, str] | None:
    """What was noted, None when nothing was."""
    try:
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def _shown(told: Mapping[str, str], name: str) -> str:
    text = told.get(name) or "nothing"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
