"""Looks at all servers, and tells a person what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cdc.base.config import Config
from cdc.base.errors import CdcError
from cdc.base.words import counted
from cdc.bridge.scope.topics import state_topic
from cdc.ops.setup.kafka_side import SeenKafka, look_at_kafka
from cdc.ops.setup.replica_side import SeenReplica, look_at_replica
from cdc.ops.setup.source_side import SeenSource, look_at_source

_OPTIONS: Final = (
    (", or name a file: source.password_file", ""),
    (", or name a file: sink.password_file", ""),
    (", and kafka.password or kafka.password_file", " with -X, and the password in CDC_KAFKA__PASSWORD"),
    (" under kafka.options", ""),
    ("ssl.ca.location", "-X ssl.ca.location=…"),
    ("security.protocol", "-X security.protocol=…"),
    ("kafka.bootstrap", "--kafka"),
    ("source.dsn", "--source"),
    ("sink.dsn", "--replica"),
)
"""Configuration keys in remedies of other commands, and what to write instead: there is no file yet."""


@dataclass(frozen=True, slots=True)
class ServersSeen:
    """The servers; one is None if it was not looked at, or is not configured."""

    source: SeenSource | None = None
    kafka: SeenKafka | None = None
    replica: SeenReplica | None = None


def look(config: Config, admin: str, *, everything: bool) -> ServersSeen:
    """Look at all three servers. The arguments and errors are those of each look; remedies do not assume a file."""
    try:
        source = look_at_source(config, admin, everything=everything)
        kafka = look_at_kafka(config)
        replica = None if config.sink is None else look_at_replica(config, source.tables, source.identity, admin)
    except CdcError as error:
        error.remedy = without_file(error.remedy)
        raise
    return ServersSeen(source, kafka, replica)


def without_file(remedy: str) -> str:
    """Returns a remedy with options and variables of ``cdc init`` in place of configuration keys."""
    for key, option in _OPTIONS:
        remedy = remedy.replace(key, option)
    return remedy


def tell(config: Config, seen: ServersSeen) -> Iterator[str]:
    """Yields lines for people: the servers, the tables, and what is in the way."""
    if seen.source is not None:
        yield from tell_source(seen.source)
    if seen.kafka is not None:
        yield from tell_kafka(config.name, seen.kafka)
    if seen.replica is not None:
        yield from tell_replica(seen.replica)
    if seen.source is not None:
        yield from _tables(config, seen.source)


def tell_source(source: SeenSource) -> Iterator[str]:
    """Yields lines about the source server."""
    facts = source.facts
    slots = f"{facts.slots_used} of {facts.slots_max} slots in use"
    yield f"source   {source.address}: PostgreSQL {facts.version}, wal_level {facts.wal_level}, {slots}"
    if source.is_new:
        yield f"         role {source.role} cannot connect yet: looked as {facts.role}"
    elif source.lacks_rights:
        yield f"         role {source.role} lacks rights"


def tell_kafka(name: str, kafka: SeenKafka) -> Iterator[str]:
    """Yields lines about the cluster, and about topics that already have this name."""
    release = f"Kafka {kafka.release} or newer, " if kafka.release else ""
    yield f"kafka    {release}{counted(kafka.brokers, 'broker')}, {counted(kafka.topics, 'topic')}"
    if kafka.has_progress:
        yield (
            f"         a bridge named {name} has published here before, {counted(len(kafka.ours), 'topic')}: this one "
            "continues with them if it has the same source; otherwise choose another --name"
        )
    elif kafka.ours:
        shown = ", ".join(kafka.ours[:3]) + (" …" if len(kafka.ours) > 3 else "")
        yield f"         topics that begin with {name}. already exist ({shown}): see whose, or choose another --name"


def tell_replica(replica: SeenReplica) -> Iterator[str]:
    """Yields a line about the replica."""
    if replica.refusal:
        yield f"replica  role {replica.role} cannot connect yet: {replica.refusal}"
    else:
        yield f"replica  {replica.address}" + (f": role {replica.role} lacks rights" if replica.lacks_rights else "")


def _tables(config: Config, source: SeenSource) -> Iterator[str]:
    yield ""
    for info in source.tables:
        rows = f"about {counted(info.estimated_rows, 'row')}, " if info.estimated_rows else ""
        topic = state_topic(config, info.namespace, info.name)
        yield f"capture  {printable(info.qualified_name)} → {topic} ({rows}key {printable(', '.join(info.key))})"
    for each in source.troubles:
        yield f"{each.level:<7}  {printable(each.subject)}: {printable(each.text)}"
        yield f"         remedy: {printable(each.remedy)}"


def printable(text: str) -> str:
    """Escape line feeds and control sequences, which names may contain and a terminal or a shell must not see."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
