"""``cdc snapshot``: writes tables as of one commit, from their topics, as Parquet with a manifest."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from cdc.base.config import Config
from cdc.base.daemon.logs import configure
from cdc.base.errors import ConfigError
from cdc.bridge.source.connect import connect, source_errors
from cdc.cli.options import ConfigOption, LogLevelOption, load_config
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.snapshot import AsOf, SnapshotJob
from cdc.ops.jobs.as_of import parse_as_of, parse_every
from cdc.ops.jobs.describe import JobDeployment, describe_deployment, spark_settings
from cdc.ops.jobs.launch import INTERRUPTED, run_job

_HERE = (
    "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
    " ELSE pg_catalog.pg_current_wal_flush_lsn() END::text,"
    " (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint"
)


def snapshot(
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE", help="schema.table; all tables are written as of the same commit.")
    ],
    to: Annotated[Path, typer.Option(help="Folder in which each snapshot gets its own folder.", metavar="FOLDER")],
    as_of: Annotated[
        str,
        typer.Option(help="now, an LSN, or a commit time such as 2026-11-21T15:00:00Z.", metavar="POINT"),
    ] = "now",
    offsets: Annotated[
        str | None,
        typer.Option(help="Offsets by topic and partition, as JSON, instead of --as-of.", metavar="JSON"),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Repeat at this interval (30s, 15m, 1h, 1d), until Ctrl-C.", metavar="DURATION")
    ] = None,
    keep: Annotated[int | None, typer.Option(help="Keep only this many of the newest snapshots.", min=1)] = None,
    config: ConfigOption = None,
    master: Annotated[str, typer.Option(help="Spark master; local[*] is this machine.", metavar="URL")] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(help="A Spark setting; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    log_level: LogLevelOption = "warning",
) -> None:
    """Write tables as they were at one commit: Parquet files, and a manifest with the commit and the counts.

    The rows come from the topics alone. You can ask for a past state as long as compaction has not erased it. If
    compaction may have erased it, the command refuses, and names the oldest point that it can still answer for.

    Exit code 0 when the snapshot is written, 2 when it could not be.

    Examples:

        cdc snapshot public.orders public.items --to snapshots

        cdc snapshot public.orders --to snapshots --as-of 2026-11-21T15:00:00Z

        cdc snapshot public.orders --to /shared/snapshots --every 1h --keep 24 --master spark://spark:7077
    """
    point, pause_s = parse_as_of(as_of, offsets), None if every is None else parse_every(every)
    if pause_s is not None and (as_of != "now" or offsets is not None):
        raise ConfigError(
            "--every always writes the newest state, so it cannot be combined with a point in the past",
            remedy="leave --as-of and --offsets out",
        )
    loaded = load_config(config)
    configure(log_level, loaded.secrets())
    settings = spark_settings(master, conf=conf or ())
    while True:
        started = time.monotonic()
        job = _describe(loaded, describe_deployment(loaded, tables), settings, point, to.resolve(), keep)
        code = run_job("snapshot", job)
        if pause_s is None or code == INTERRUPTED:
            raise typer.Exit(code)
        try:
            time.sleep(max(0.0, pause_s - (time.monotonic() - started)))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)


def _describe(
    config: Config, deployment: JobDeployment, spark: SparkSettings, as_of: AsOf, folder: Path, keep: int | None
) -> SnapshotJob:
    with connect(config.source.connection(), application_name="cdc snapshot") as connection:
        lsn, now_us = source_position(connection)
    return SnapshotJob(
        spark=spark,
        kafka=deployment.kafka,
        stream=deployment.stream,
        tables=deployment.tables,
        as_of=as_of,
        fence=lsn,
        fence_us=now_us,
        folder=str(folder),
        keep=keep,
    )


def source_position(connection: psycopg.Connection[tuple[object, ...]]) -> tuple[str, int]:
    """Returns the source's WAL position, and its clock in µs since 1970."""
    with source_errors("asking for the source's position"):
        row = connection.execute(_HERE).fetchone()
    assert row is not None
    return str(row[0]), int(str(row[1]))
