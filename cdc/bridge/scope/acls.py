"""Lists the ACLs that bridge, sink and view of a configuration need, as commands to paste."""

from __future__ import annotations

from cdc.base.config import Config
from cdc.base.table_names import parts
from cdc.contract.naming import history_topic
from cdc.contract.patterns import in_scope
from cdc.kafka.acls import bridge_acls, event_acls, sink_acls, view_acls


def kafka_grants(config: Config) -> list[str]:
    """Returns a comment for each part, followed by its commands for ``kafka-acls.sh``."""
    options = config.kafka.client_options()
    others = list(config.topics.names.values())
    written = [*others, *_histories(config)]
    events = [
        event_acls(each.topic_prefix or "*", prefixed=bool(each.topic_prefix and each.topic_columns))
        for each in config.source.outbox.values()
    ]
    events += [event_acls(each.topic, prefixed=False) for each in config.source.messages.values()]
    parts = [("bridge", [*bridge_acls(config.name, written), *events]), ("sink", sink_acls(config.name, others))]
    if config.view is not None:
        parts.append(("view", view_acls(config.name, [*others, *config.view.topics])))
    lines = []
    for part, acls in parts:
        lines += [f"# What {part} {config.name} needs.", *(acl.command(options) for acl in acls)]
    return lines


def _histories(config: Config) -> list[str]:
    """Returns the history topics that the prefix of all other topics does not cover."""
    named = {parts(table): topic for table, topic in config.topics.names.items()}
    return [
        history_topic(topic)
        for (namespace, table), topic in named.items()
        if in_scope(namespace, table, config.topics.history, ())
    ]
