"""The ACLs that bridge and sink need in Kafka, as commands to copy. Pure.

Write and Read imply Describe. What is not here is not needed: no consumer group is joined, and nothing is asked of the
cluster as a whole.

https://kafka.apache.org/documentation/#security_authz_primitives
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

BRIDGE_ON_TOPICS: Final = ("Read", "Write", "Create", "DescribeConfigs")
"""Read: the stored progress, and the keys that a TRUNCATE deletes. DescribeConfigs: drift of topic settings."""

SINK_ON_TOPICS: Final = ("Read", "DescribeConfigs")
"""DescribeConfigs: for how long a topic keeps superseded records and tombstones, so what the sink may have missed."""


class Acl(NamedTuple):
    """Operations on one resource, or with ``prefixed`` on all whose names begin so.

    Attributes:
        resource: ``topic``, ``group`` or ``transactional-id``, as ``kafka-acls.sh`` has it.
    """

    resource: str
    name: str
    operations: Sequence[str]
    prefixed: bool = False

    def command(self, options: Mapping[str, Any]) -> str:
        """The command that grants it to whom these librdkafka settings connect as."""
        words = ["kafka-acls.sh", "--bootstrap-server", str(options.get("bootstrap.servers", "…"))]
        words += ["--command-config", "admin.properties", "--add", "--allow-principal", principal(options)]
        words += [word for operation in self.operations for word in ("--operation", operation)]
        words += [f"--{self.resource}", self.name]
        words += ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        return shlex.join(words)

    def remedy(self, options: Mapping[str, Any]) -> str:
        """The command for an error message, which can only tell of the first right that is missing."""
        return f"{self.command(options)}  # all there are: cdc grants kafka"


def bridge_acls(name: str, other_topics: Sequence[str]) -> list[Acl]:
    """What the bridge ``name`` needs; ``other_topics`` are those that ``topics.names`` calls something else."""
    return [Acl("transactional-id", transactional_id(name), ("Write",)), *_topics(name, other_topics, BRIDGE_ON_TOPICS)]


def sink_acls(name: str, other_topics: Sequence[str]) -> list[Acl]:
    """What the sink of the bridge ``name`` needs."""
    return _topics(name, other_topics, SINK_ON_TOPICS)


def transactional_id(name: str) -> str:
    """Of the bridge ``name``."""
    return f"cdc-{name}"


def principal(options: Mapping[str, Any]) -> str:
    """As whom the brokers know a client with these settings; of a client certificate only the subject is left open."""
    if "sasl.username" in options:
        return f"User:{options['sasl.username']}"
    if str(options.get("security.protocol", "")).lower() == "ssl" and any(
        name.startswith(("ssl.certificate.", "ssl.keystore.")) for name in options
    ):
        return "User:CN=…"
    return "User:ANONYMOUS"


def _topics(name: str, other_topics: Sequence[str], operations: Sequence[str]) -> list[Acl]:
    return [
        Acl("topic", f"{name}.", operations, prefixed=True),
        *(Acl("topic", topic, operations) for topic in sorted(other_topics)),
    ]
