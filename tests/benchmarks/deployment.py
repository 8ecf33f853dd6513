"""The real bridge and sink as an operator runs them, on a configuration of nothing but what the benchmark must say."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cdc.base.lsn import LSN
from tests.benchmarks.processes import Program, program, wait_until
from tests.benchmarks.topics import ProgressWatcher
from tests.benchmarks.workload import PUBLICATION, SLOT

TIMEOUT_S = 1800.0
LEAST_MESSAGE_BYTES = 1_048_588
"""Where rows are put aside, so that one of 1.1 MB is too large."""


class Deployment(NamedTuple):
    """One bridge, and its sink if it has a replica: what their configuration file says beside the defaults.

    ``replica_url``: of a replica in another database than PostgreSQL.
    ``waits``: whether backfills go no faster than the sink.
    ``snapshot`` is ``never`` where the stream is measured: the slot is older than the rows, so it has all of them.
    ``in_python``: as where there is no compiler. ``delivery``: None for the default. ``registry``: where the schemas
    go if values are in another ``format`` than JSON; else None. ``envelope``: values are Debezium's change events.
    ``values``: the section of that name; ``events``: records have the headers of CloudEvents. ``quarantine``: a table
    whose rows may lack, and how many of them, in the topic and in the replica.
    """

    name: str
    source_dsn: str
    bootstrap: str
    replica_dsn: str | None = None
    replica_url: str | None = None
    slot: str = SLOT
    snapshot: str = "never"
    waits: bool = True
    tables: tuple[str, ...] = ("public.orders",)
    in_python: bool = False
    delivery: str | None = None
    registry: str | None = None
    format: str = "json"
    envelope: bool = False
    values: Mapping[str, str] | None = None
    events: bool = False
    quarantine: tuple[str, int] | None = None

    @property
    def topic(self) -> str:
        return f"{self.name}.public.orders"

    def write(self, directory: Path) -> Path:
        """Write the configuration file (JSON is YAML) and return its path."""
        content: dict[str, Any] = {
            "name": self.name,
            "source": {
                "dsn": self.source_dsn,
                "slot": self.slot,
                "publication": PUBLICATION,
                "publication_mode": "disabled",
                "tables": list(self.tables),
            },
            "snapshot": {"mode": self.snapshot, "wait_for_sink": self.waits},
            "kafka": {"bootstrap": self.bootstrap},
        }
        if self.delivery is not None:
            content["delivery"] = self.delivery
        topics: dict[str, Any] = {}
        if self.registry is not None:
            topics["format"] = self.format
            content["registry"] = {"url": self.registry}
        if self.envelope:
            topics["envelope"] = "debezium"
            content["debezium"] = {"decimal_handling_mode": "string"}
        if self.values is not None:
            content["values"] = dict(self.values)
        if self.events:
            topics["cloudevents"] = True
        if self.replica_dsn is not None:
            content["sink"] = {"dsn": self.replica_dsn}
        if self.replica_url is not None:
            content["sink"] = {"url": self.replica_url}
        if self.quarantine is not None:
            table, budget = self.quarantine
            topics["max_message_bytes"] = LEAST_MESSAGE_BYTES
            for part in ("source", "sink"):
                content[part]["quarantine"] = {table: {"budget": budget}}
        if topics:
            content["topics"] = topics
        path = directory / f"{self.name}.yaml"
        path.write_text(json.dumps(content, indent=2))
        return path


@contextmanager
def daemon(verb: str, deployment: Deployment, directory: Path) -> Iterator[Program]:
    """Run ``cdc run`` or ``cdc sink`` as an operator would, for the length of the block."""
    argv: list[str | Path] = [sys.executable, "-m", "cdc", verb, "-c", deployment.write(directory)]
    if deployment.in_python:
        argv = ["env", "CDC_PURE_PYTHON=1", *argv]
    with program(f"cdc {verb}", argv, directory) as started:
        yield started


def wait_until_published(deployment: Deployment, bridge: Program, lsn: LSN) -> None:
    """Wait until a committed reader sees progress that covers ``lsn``, as long as the bridge runs."""
    with closing(ProgressWatcher(deployment.bootstrap, deployment.name)) as progress:

        def published() -> bool:
            bridge.must_run()
            return progress.passed(lsn)

        wait_until(published, f"progress to cover {lsn}", timeout_s=TIMEOUT_S)
