"""A PostgreSQL and a Kafka of the benchmarks' own, with the settings of a small production server."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
import psycopg
from psycopg import sql

from cdc.lab.stack.jars import kafka_version
from cdc.lab.stack.kafka import KafkaBroker
from cdc.lab.stack.postgres import PostgresServer

POSTGRES_SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}
"""No checkpoint and no eviction in the middle of a run; fsync and synchronous_commit stay on, their default."""

BROKER_HEAP_MB = 1024
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.retention.check.interval.ms": "300000",
    "log.segment.delete.delay.ms": "60000",
}
"""Kafka's own defaults again, where a broker for tests looks more often."""


class Servers:
    """The running servers; ``directory`` is for files of the benchmarks and goes away with them."""

    def __init__(self, postgres: PostgresServer, kafka: KafkaBroker, directory: Path) -> None:
        self._postgres, self._kafka = postgres, kafka
        self.directory = directory
        self.bootstrap = kafka.bootstrap

    @property
    def broker_pid(self) -> int:
        return self._kafka.pid

    def admin(self) -> psycopg.Connection:
        """An autocommit session in no measured database."""
        return psycopg.connect(self._postgres.dsn(), autocommit=True)

    @contextmanager
    def database(self, name: str, *, template: str = "template1") -> Iterator[str]:
        """A copy of the template (usually empty) for the length of the block; yields its URL."""
        with self.admin() as admin:
            names = sql.Identifier(name), sql.Identifier(template)
            admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
            try:
                yield self._postgres.dsn(name)
            finally:
                admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def postgres_program(self, name: str) -> str | None:
        """Path of a program that belongs to the server's installation, if it is there."""
        path = self._postgres.binaries / name
        return str(path) if path.exists() else None

    def machine(self) -> str:
        """One line: what the figures were taken on."""
        with self.admin() as admin:
            row = admin.execute("SELECT current_setting('server_version')").fetchone()
        return ", ".join(
            (
                hardware(),
                f"PostgreSQL {row[0] if row else '?'} (fsync on, synchronous_commit on)",
                f"Kafka {kafka_version()} (one node, {BROKER_HEAP_MB} MB heap)",
                f"psycopg {version('psycopg')}",
                f"librdkafka {confluent_kafka.libversion()[0]}",
            )
        )


@contextmanager
def servers(say: Callable[[str], None]) -> Iterator[Servers]:
    """Start both servers; stop them and remove everything at the end, also after Ctrl-C."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cdc-bench-")))
        postgres = stack.enter_context(PostgresServer.open(major=16, settings=POSTGRES_SETTINGS, say=say))
        kafka = stack.enter_context(KafkaBroker.open(settings=BROKER_SETTINGS, heap_mb=BROKER_HEAP_MB, say=say))
        yield Servers(postgres, kafka, directory)


def hardware() -> str:
    """One line: the machine, without its servers."""
    return (
        f"{os.cpu_count()} cores ({_processor()}), {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
