"""The ACLs that bridge and sink need in Kafka, as commands to copy. Pure.

Write and Read imply Describe. No other rights are needed: bridge and sink ask for nothing that concerns the cluster as
a whole. They join no consumer group; the sink stores its offsets as those of one (``replay.backlog``).

https://kafka.apache.org/documentation/#security_authz_primitives
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

BRIDGE_ON_TOPICS: Final = ("Read", "Write", "Create", "DescribeConfigs")
"""The bridge's rights. Read: for the stored progress, and for the keys that a TRUNCATE deletes. DescribeConfigs: to
compare the topic settings with the configuration."""

BRIDGE_ON_EVENTS: Final = ("Write", "Create", "DescribeConfigs")
"""The bridge's rights on topics for events, which it never reads."""

SINK_ON_TOPICS: Final = ("Read", "DescribeConfigs")
"""The sink's rights. DescribeConfigs: how long a topic keeps superseded records and tombstones decides what the sink
may have missed."""


class Acl(NamedTuple):
    """Operations that are allowed on one resource, or, with ``prefixed``, on all whose names begin with ``name``.

    Attributes:
        resource: ``topic``, ``group`` or ``transactional-id``, as ``kafka-acls.sh`` spells it.
    """

    resource: str
    name: str
    operations: Sequence[str]
    prefixed: bool = False

    def command(self, options: Mapping[str, Any]) -> str:
        """Returns the command that grants these operations to the principal of a client with these settings."""
        words = ["kafka-acls.sh", "--bootstrap-server", str(options.get("bootstrap.servers", "…"))]
        words += ["--command-config", "admin.properties", "--add", "--allow-principal", principal(options)]
        words += [word for operation in self.operations for word in ("--operation", operation)]
        words += [f"--{self.resource}", self.name]
        words += ["--resource-pattern-type", "prefixed"] if self.prefixed else []
        return shlex.join(words)

    def remedy(self, options: Mapping[str, Any]) -> str:
        """Returns the command for an error message, with a hint at ``cdc grants kafka``.

        Kafka reports only the first missing right; the hint spares people from finding the others one by one.
        """
        return f"{self.command(options)}  # all there are: cdc grants kafka"


def bridge_acls(name: str, other_topics: Sequence[str]) -> list[Acl]:
    """The ACLs of the bridge ``name``; ``other_topics`` are those that ``topics.names`` calls something else."""
    own = Acl("transactional-id", transactional_id(name), ("Write",)), Acl("group", sink_group(name), ("Describe",))
    return [*own, *_topics(name, other_topics, BRIDGE_ON_TOPICS)]


def event_acls(topic: str, *, prefixed: bool) -> Acl:
    """The ACL of the bridge on a topic for events, or on all whose names begin so."""
    return Acl("topic", topic, BRIDGE_ON_EVENTS, prefixed)


def sink_acls(name: str, other_topics: Sequence[str]) -> list[Acl]:
    """The ACLs of the sink that follows the bridge ``name``."""
    return [Acl("group", sink_group(name), ("Read",)), *view_acls(name, other_topics)]


def view_acls(name: str, other_topics: Sequence[str]) -> list[Acl]:
    """The ACLs of a view of the topics of the bridge ``name``."""
    return _topics(name, other_topics, SINK_ON_TOPICS)


def sink_group(name: str) -> str:
    """The consumer group that has the offsets of the sink ``name``. It never has a member."""
    return f"{name}.sink"


def transactional_id(name: str) -> str:
    """The transactional id of the bridge ``name``."""
    return f"cdc-{name}"


def principal(options: Mapping[str, Any]) -> str:
    """The principal that the brokers see in a client with these settings.

    The settings do not tell the subject of a client certificate, so that one stays open: ``User:CN=…``.
    """
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
