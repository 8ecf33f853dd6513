"""``cdc audit``: writes who changed what in a table, and when, from its history topic to Parquet and a summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdc.base.daemon.logs import configure
from cdc.cli.options import ConfigOption, LogLevelOption, load_config
from cdc.contract.jobspec.audit import AuditJob
from cdc.ops.jobs.as_of import parse_time
from cdc.ops.jobs.describe import describe_deployment, spark_settings
from cdc.ops.jobs.launch import run_job


def audit(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="schema.table, with a history (topics.history).")],
    to: Annotated[Path, typer.Option(help="New folder for the audit trail and its summary.", metavar="FOLDER")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="""Only this key, as in the topic: '{"id":42}'; may be repeated.""", metavar="JSON"),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Commits from this time on, such as 2026-11-21T15:00:00Z.", metavar="TIME")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Commits before this time.", metavar="TIME")] = None,
    top: Annotated[int, typer.Option(help="How many of the most changed keys to name.", min=1, max=1000)] = 10,
    config: ConfigOption = None,
    master: Annotated[str, typer.Option(help="Spark master; local[*] is this machine.", metavar="URL")] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option(help="A Spark setting; may be repeated.", metavar="NAME=VALUE")
    ] = None,
    log_level: LogLevelOption = "warning",
) -> None:
    """Write the audit trail of a table: each change with its commit, its old and new row, and what differs.

    Exit code 0 when the trail is written, 2 when it could not be.

    Examples:

        cdc audit public.orders --to audit

        cdc audit public.orders --key '{"id":42}' --since 2026-11-01T00:00:00Z --to audit-42
    """
    since_us = None if since is None else parse_time(since, "--since")
    until_us = None if until is None else parse_time(until, "--until")
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    spark = spark_settings(master, conf=conf or ())
    deployment = describe_deployment(loaded, [table])
    job = AuditJob(
        spark=spark,
        kafka=deployment.kafka,
        table=deployment.tables[0],
        keys=tuple(key or ()),
        since_us=since_us,
        until_us=until_us,
        folder=str(to.resolve()),
        top=top,
    )
    raise typer.Exit(run_job("audit", job))
