"""Where a soak takes place: servers of its own, a bridge and a sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdc.lab.stack import KafkaBroker, PostgresMajor, PostgresServer
from tests.support import bank
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment, deployed
from tests.support.servers import Database, OwnStack

SCHEMA: Final = "soak"
CAPTURED: Final = ("public", SCHEMA)
_COMPACTED_SOON: Final = {
    "segment_ms": 30_000,
    "min_compaction_lag_ms": 30_000,
    "max_compaction_lag_ms": 60_000,
    "min_cleanable_dirty_ratio": 0.01,
}
"""So that Kafka compacts the topics again and again, while they are written and read."""


@dataclass(frozen=True)
class Place:
    """The servers, and what runs on them."""

    broker: KafkaBroker
    source_server: PostgresServer
    replica_server: PostgresServer
    live: Deployment

    @property
    def processes(self) -> dict[str, CdcProcess]:
        """Bridge and sink, by name."""
        return {"bridge": self.live.bridge, "sink": self.live.sink}

    def ended(self) -> list[str]:
        """What has ended although nothing has hit it, with the end of its log."""
        servers = self.broker, self.source_server, self.replica_server
        return [
            *(f"the {name} ended by itself\n{each.tail()}" for name, each in self.processes.items() if each.ended),
            *(f"{each.name} ended by itself: {each.log_path}" for each in servers if not each.pid),
        ]


@contextmanager
def opened(folder: Path, delivery: str, major: PostgresMajor) -> Iterator[Place]:
    """Start the servers, make the tables of the bank, and the schema of the load; ``folder`` gets the logs."""
    with closing(OwnStack()) as servers:
        broker, source_server = servers.kafka(), servers.postgres(major)
        replica_server = servers.postgres(16 if major == 18 else 18)
        source, replica = (Database("postgres", each.dsn()) for each in (source_server, replica_server))
        source.execute(f"create schema {SCHEMA}")
        bank.create(source)
        sections: dict[str, dict[str, Any]] = {
            "source": {"tables": [f"{each}.*" for each in CAPTURED]},
            "topics": {"partitions": 2, **_COMPACTED_SOON},
        }
        with deployed(source, broker.bootstrap, replica, folder, sections, CdcProcess) as live:
            live.deliver(delivery)
            yield Place(broker, source_server, replica_server, live)
