"""Writes the text of the configuration file, with comments about what was found and without any secret. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from cdc.base.config import Config
from cdc.base.words import counted
from cdc.ops.setup.answers import Answers
from cdc.ops.setup.seen import ServersSeen, printable
from cdc.ops.setup.source_side import SeenSource

_SHOWN_TABLES = 20
_MODES: Mapping[str, str] = {
    "filtered": "filtered: cdc creates the publication and keeps it up to date. Its role must own the tables.",
    "disabled": "disabled: the tables' owner creates the publication (cdc grants source prints the command), and adds "
    "new\n  # tables to it. With filtered, cdc does that, if its role owns the tables.",
}


def render(answers: Answers, config: Config, seen: ServersSeen) -> str:
    """Returns the file's text; loading it gives the configuration that the answers describe."""
    parts = [_head(answers), _source(answers, config, seen.source), _kafka(answers), _topics(config, seen)]
    if answers.replica:
        parts.append(_sink(answers))
    return "\n".join([*parts, _http()])


def _head(answers: Answers) -> str:
    return f"""\
# Made by `cdc init`. `cdc config schema` lists every key with its default; `cdc config show` prints what applies.
# Any key can be overridden from the environment: source.dsn is CDC_SOURCE__DSN.

# Every topic name begins with it: public.orders goes to {answers.name}.public.orders. You cannot change it later.
name: {scalar(answers.name)}
"""


def _source(answers: Answers, config: Config, seen: SeenSource | None) -> str:
    mode = "filtered" if seen is None else seen.mode
    patterns = config.source.tables if seen is None else seen.patterns
    lines = [
        "source:",
        "  # The password is not here: give it in CDC_SOURCE__PASSWORD, PGPASSWORD or ~/.pgpass, or name a file:",
        "  #   password_file: source-password",
        f"  dsn: {scalar(answers.source)}",
        f"  # {_MODES[mode]}",
        f"  publication_mode: {mode}",
        "  # schema.table, with * for any characters.",
        "  tables:",
        *(f"    - {scalar(pattern)}" for pattern in patterns),
        *([] if seen is None else _found(seen)),
    ]
    if answers.exclude:
        lines += ["  exclude:", *(f"    - {scalar(pattern)}" for pattern in answers.exclude)]
    return "\n".join([*lines, ""])


def _found(seen: SeenSource) -> Iterator[str]:
    names = [printable(each.qualified_name) for each in seen.tables]
    yield f"  # {counted(len(names), 'table')} when this was written:"
    yield from (f"  #   {name}" for name in names[:_SHOWN_TABLES])
    if len(names) > _SHOWN_TABLES:
        yield f"  #   and {len(names) - _SHOWN_TABLES} more: cdc tables list"
    troubles = [each for each in seen.troubles if each.subject.startswith(("table ", "relation "))]
    if troubles:
        joins = "cdc adds it" if seen.mode == "filtered" else "grant SELECT on it and add it to the publication"
        yield f"  # Worth knowing about these (once a table that is left out is fixed, {joins}):"
    for each in troubles:
        yield f"  #   {printable(each.subject)}: {printable(each.text)}"
        yield f"  #     {printable(each.remedy)}"


def _kafka(answers: Answers) -> str:
    lines = ["kafka:", f"  bootstrap: {scalar(answers.kafka)}"]
    if answers.options:
        lines += ["  # Options of the Kafka client, librdkafka. Put the password into CDC_KAFKA__PASSWORD, or a file:"]
        lines += ["  #   password_file: kafka-password", "  options:"]
        lines += [f"    {scalar(name)}: {scalar(value)}" for name, value in answers.options.items()]
    return "\n".join([*lines, ""])


def _topics(config: Config, seen: ServersSeen) -> str:
    if seen.kafka is None:
        copies, in_sync, why = 1, 1, "One copy works on any cluster; use 3, and min_insync_replicas: 2, in production."
    else:
        copies, in_sync = seen.kafka.replication_factor, seen.kafka.min_insync_replicas
        why = f"The cluster has {counted(seen.kafka.brokers, 'broker')}."
        why += "" if copies > 2 else " With three, write 3 here and 2 below, and a broker may fail."
    return f"""\
topics:
  # You can never change this number: a key must stay in its partition.
  partitions: {config.topics.partitions}
  # {why}
  replication_factor: {copies}
  min_insync_replicas: {in_sync}
"""


def _sink(answers: Answers) -> str:
    return f"""\
sink:
  # The password: CDC_SINK__PASSWORD, PGPASSWORD or ~/.pgpass, or
  #   password_file: replica-password
  dsn: {scalar(answers.replica)}
"""


def _http() -> str:
    return """\
# For Prometheus and for probes: /metrics, /live and /ready.
# http:
#   bridge_port: 9187
#   sink_port: 9188
"""


def scalar(value: Any) -> str:
    """Returns a value as YAML on one line, quoted if necessary."""
    return yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=1_000_000).strip()[1:-1]
