"""The place of a demo: two databases in one PostgreSQL, a Kafka, and a directory for the configuration and the logs."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml
from confluent_kafka.admin import AdminClient
from psycopg import sql

from cdc.base.broker_log import BROKER_LOG
from cdc.contract.record import EnvelopeName, FormatName
from cdc.lab.proof.debezium_fields import fields_by_catalog
from cdc.lab.proof.topic_side import ReadFields, fields_by_registry
from cdc.lab.stack.embedded import free_port
from cdc.lab.stack.stack import GivenKafka, GivenPostgres, Stack

_CONFIG_HEAD: Final = "# Written by `cdc demo`.\n"


@dataclass(frozen=True, slots=True)
class DemoPlace:
    """Everything that bridge and sink need to know.

    Attributes:
        name: the configuration's name, with which the topics' names begin.
        source_dsn, replica_dsn: two empty databases.
        bootstrap: the Kafka cluster.
        directory: holds ``config`` and the logs; private to this user.
        bridge_port, sink_port: the ports of their HTTP pages.
        format: how values are written.
        registry_url: the schema registry if their schemas are in one, else None.
        envelope: what surrounds a row in a value.
    """

    name: str
    source_dsn: str
    replica_dsn: str
    bootstrap: str
    directory: Path
    bridge_port: int
    sink_port: int
    format: FormatName = "json"
    registry_url: str | None = None
    envelope: EnvelopeName = "plain"

    @property
    def fields(self) -> ReadFields | None:
        """What reads values for the proof that are not rows in JSON; None if all are."""
        if self.envelope == "debezium":
            return fields_by_catalog(self.source_dsn, {}, self.registry_url)
        return None if self.registry_url is None else fields_by_registry(self.registry_url)

    @property
    def config(self) -> Path:
        """The configuration file of bridge and sink."""
        return self.directory / f"{self.name}.yaml"

    def write_config(self) -> None:
        """Write the configuration file."""
        content: dict[str, Any] = {
            "name": self.name,
            "source": {"dsn": self.source_dsn},
            "kafka": {"bootstrap": self.bootstrap},
            # Keeps the cleaner away for an hour, so that the proof can read every single record.
            "topics": {"min_compaction_lag_ms": 3_600_000},
            "sink": {"dsn": self.replica_dsn},
            "http": {"bridge_port": self.bridge_port, "sink_port": self.sink_port},
        }
        if self.registry_url is not None:
            content["topics"] |= {"format": self.format}
            content["registry"] = {"url": self.registry_url}
        if self.envelope != "plain":
            content["topics"] |= {"envelope": self.envelope}
        self.config.write_text(_CONFIG_HEAD + yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


@contextmanager
def place(stack: Stack, format_: FormatName = "json", envelope: EnvelopeName = "plain") -> Iterator[DemoPlace]:
    """Make a place on these servers. On the user's own servers, it gets a unique name and is removed at the end."""
    given = isinstance(stack.postgres, GivenPostgres) or isinstance(stack.kafka, GivenKafka)
    name = f"shop_{secrets.token_hex(3)}" if given else "shop"
    source, replica = name, f"{name}_replica"
    with (
        tempfile.TemporaryDirectory(prefix="cdc-demo-") as directory,
        psycopg.connect(stack.postgres.dsn(), autocommit=True) as connection,
    ):
        for database in (source, replica):
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        try:
            yield DemoPlace(
                name=name,
                source_dsn=stack.postgres.dsn(source),
                replica_dsn=stack.postgres.dsn(replica),
                bootstrap=stack.kafka.bootstrap,
                directory=Path(directory),
                bridge_port=free_port(),
                sink_port=free_port(),
                format=format_,
                registry_url=None if stack.registry is None else stack.registry.url,
                envelope=envelope,
            )
        finally:
            if given:
                _remove(connection, stack.kafka.bootstrap, name, (source, replica))


def _remove(connection: psycopg.Connection[Any], bootstrap: str, name: str, databases: tuple[str, ...]) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
            (f"cdc_{name}",),
        )
    for database in databases:
        with contextlib.suppress(psycopg.Error):
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=BROKER_LOG)
    topics = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(f"{name}.")]
    if topics:
        for future in admin.delete_topics(topics, operation_timeout=10).values():
            future.result()
