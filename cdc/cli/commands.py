"""Lists the commands: where each one is, and what ``cdc --help`` says about it. A command is imported when it is used.

So ``cdc --help`` loads no client library, and each command loads only the libraries that it needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group

from cdc.base import interrupts


class Command(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        group: its heading in ``cdc --help``.
        module: its module in this folder.
        function: its function there, or the ``Typer`` of a group of commands.
        summary: the first line of the function's docstring, or of the group's help.
        answers: whether its exit code 1 is an answer, so that a crash must have another code.
    """

    group: str
    module: str
    function: str
    summary: str
    answers: bool = False


RUN: Final = "Run"
OBSERVE: Final = "Observe"
REPAIR: Final = "Repair"
LOOK: Final = "Look"
LEARN: Final = "Learn"

COMMANDS: Final[Mapping[str, Command]] = {
    "run": Command(
        RUN,
        "run_command",
        "run",
        "Run the bridge: PostgreSQL's row changes to compacted topics, until SIGTERM or Ctrl-C.",
    ),
    "sink": Command(
        RUN,
        "sink_command",
        "sink",
        "Run the sink: compacted topics to replica tables, one consistent cut after another, until SIGTERM or Ctrl-C.",
    ),
    "serve": Command(
        RUN,
        "serve_command",
        "serve",
        "Keep topics as tables, and answer questions about them over HTTP, until SIGTERM or Ctrl-C.",
    ),
    "init": Command(
        RUN,
        "init_command",
        "init",
        "Look at source, Kafka and replica, write a configuration with comments, and print the next commands.",
    ),
    "check": Command(
        RUN,
        "check_command",
        "check",
        "Check server, standby, rights, tables, publication, slot, topics and replica before the start. "
        "Changes nothing.",
    ),
    "grants": Command(
        RUN,
        "grants_command",
        "grants_app",
        "Print the rights that bridge and sink need, and no more, as commands to paste.",
    ),
    "config": Command(
        RUN, "config_command", "config_app", "Show the effective configuration, or the schema of the file."
    ),
    "tables": Command(RUN, "tables_command", "tables_app", "Show which tables are captured; add or remove one."),
    "status": Command(
        OBSERVE,
        "status_command",
        "status",
        "Show how far slot, topics and replica are, and what is wrong with them. Changes nothing.",
    ),
    "dashboard": Command(
        OBSERVE,
        "dashboard_command",
        "dashboard",
        "Show deployments in the browser, each as cdc status and cdc check see it, until SIGTERM or Ctrl-C.",
    ),
    "health": Command(
        OBSERVE,
        "health_command",
        "health",
        "Read topics with Spark from beginning to end, and report garbage, tombstones, skew and strange keys.",
        answers=True,
    ),
    "backfill": Command(
        REPAIR,
        "backfill_command",
        "backfill",
        "Publish tables again while the stream continues: ask the running bridge, or run one until it is done.",
    ),
    "quarantine": Command(
        REPAIR,
        "quarantine_command",
        "quarantine_app",
        "List the rows that cannot be carried, or that the replica refuses; have them published again.",
    ),
    "reconcile": Command(
        REPAIR,
        "reconcile_command",
        "reconcile",
        "Compare source, topics and replica row by row with Spark, while all of them keep running.",
        answers=True,
    ),
    "get": Command(
        LOOK,
        "lookup_commands",
        "get",
        "Show the row of a key as its topic has it now: columns, partition, offset, LSN and commit time.",
        answers=True,
    ),
    "watch": Command(
        LOOK,
        "lookup_commands",
        "watch",
        "Print a line for each row that changes, as soon as it is committed, until Ctrl-C.",
    ),
    "history": Command(
        LOOK,
        "history_command",
        "history",
        "Show each change of one row: time, kind, LSN, transaction and columns, old → new. Needs topics.history.",
    ),
    "audit": Command(
        LOOK,
        "audit_command",
        "audit",
        "Write the audit trail of a table: each change with its commit, its old and new row, and what differs.",
        answers=True,
    ),
    "snapshot": Command(
        LOOK,
        "snapshot_command",
        "snapshot",
        "Write tables as they were at one commit: Parquet files, and a manifest with the commit and the counts.",
        answers=True,
    ),
    "mirror": Command(
        LOOK,
        "mirror_command",
        "mirror",
        "Copy topics into Parquet files, Delta or Iceberg tables with Spark, exactly once, until SIGTERM or Ctrl-C.",
        answers=True,
    ),
    "topics": Command(
        LOOK,
        "topics_command",
        "topics_app",
        "Look at compacted topics of any program: why they are not compacted, and what that costs.",
    ),
    "connect-schema": Command(
        LOOK,
        "connect_schema_command",
        "connect_schema",
        "Print a Kafka Connect sink connector (Debezium's JDBC sink) that copies one table, as JSON.",
    ),
    "demo": Command(
        LEARN,
        "demo_command",
        "demo",
        "Run everything once on real servers, and prove that nothing is lost, duplicated or reordered.",
    ),
    "learn": Command(
        LEARN,
        "learn_command",
        "learn",
        "Run lessons about compacted topics, with real records, segments and offsets, on a broker started for them.",
    ),
    "stack": Command(
        LEARN,
        "stack_command",
        "stack_app",
        "Start a PostgreSQL, a Kafka and more to try things on: yours by URL, in Docker, or embedded.",
    ),
}
"""The commands by name, in the order of ``cdc --help``."""


class Commands(TyperGroup):
    """The group of all commands. It lists them by their summaries, and imports the one that is called."""

    # Any, because the real types are click's, and some versions of typer contain click under a private name.
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Import the command that the arguments name."""
        name, _, rest = super().resolve_command(ctx, args)
        command = None if name is None else load(name)
        interrupts.raise_from_now_on()
        return name, command, rest


def load(name: str) -> Any:
    """Import a command, or a group of commands, as typer's command object."""
    # A command may read secrets next, so tracebacks and log lines must hide them from here on.
    from cdc.base.daemon.logs import guard_tracebacks, keep_broker_lines_to_the_log

    guard_tracebacks()
    keep_broker_lines_to_the_log()
    where = COMMANDS[name]
    if where.answers:
        from cdc.ops.jobs.answers import answering, answers

        with answers():  # if the import fails, the exit code must not be 1, which would be an answer
            found = answering(_imported(where))
    else:
        found = _imported(where)
    parent = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown")
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    return get_group(parent).commands[name]


def _imported(where: Command) -> Any:
    return getattr(importlib.import_module(f"cdc.cli.{where.module}"), where.function)
