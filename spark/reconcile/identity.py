"""The identity of a run: everything that decides what is compared, under names that its user knows.

A resumed run must have the same identity, or its report would mix two comparisons. So an option that is missing here
must not change what is compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdc.contract.jobspec.deployment import LakeSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError

BRIDGE: Final = "the bridge"
_SHOWN: Final = 100


def identity_of(job: ReconcileJob, source: str, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """Returns what this run compares.

    Args:
        job: the run.
        source: system identifier and timeline of the server.
        topic_ids: Kafka's topic ids, by topic.
    """
    replica = job.replica
    told = {
        "the source": f"{job.source.database} of server {source}",
        BRIDGE: bridge_of(job),
        "the tables": ", ".join(each.qualified_name for each in job.tables),
        "--where": job.where or "",
        "--columns": ", ".join(name for names in job.columns.values() for name in names),
        "--passes": str(job.passes),
        "--replica": "" if replica is None or isinstance(replica, LakeSettings) else replica.address,
        "--lake": replica.address if isinstance(replica, LakeSettings) else "",
        "--state": job.state or "",
        "--certificate": job.certificate or "",
    }
    for name, path in job.keys.items():
        told[f"the keys of {name}"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    for table in job.tables:
        told[f"the topic of {table.qualified_name}"] = topic_ids[table.topic]
        told[f"the definition of {table.qualified_name}"] = table.model_dump_json()
    return told


def bridge_of(job: ReconcileJob) -> str:
    """Names the bridge whose topics are compared."""
    return f"{job.stream.name}, slot {job.stream.slot}"


def refuse_another(begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Checks that a resumed run is still the comparison that was begun.

    Raises:
        JobError: it is a different one; the message names the differences.
    """
    differing = [name for name in dict.fromkeys((*begun, *now)) if begun.get(name, "") != now.get(name, "")]
    if differing:
        told = "; ".join(f"{name} was {_shown(begun, name)} and is {_shown(now, name)}" for name in differing)
        raise JobError(
            f"--resume would continue a different comparison than the one that was begun: {told}",
            remedy="give the same options as before, or leave --resume out to begin a new one",
        )


def write_identity(path: Path, identity: Mapping[str, str]) -> None:
    """Writes the identity in one step: a crash leaves the whole file or none."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(identity, indent=2), encoding="utf-8")
    unfinished.replace(path)


def read_identity(path: Path) -> dict[str, str] | None:
    """Reads the identity of the run that was begun here; None if there was none."""
    try:
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def _shown(told: Mapping[str, str], name: str) -> str:
    text = told.get(name) or "nothing"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
