"""``cdc mirror``: copies state topics into a lake of Parquet files, with as many executors as you like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdc.cli.options import ConfigOption, load_config
from cdc.contract.jobspec.mirror import (
    COMPACT_EVERY,
    INTERVAL_S,
    RECORDS_PER_BATCH,
    MirrorJob,
)
from cdc.ops.jobs.describe import describe_deployment, spark_settings
from cdc.ops.jobs.launch import run_job

CompactEvery = Annotated[
    int,
    typer.Option(
        "--compact-every",
        min=1,
        max=1000,
        metavar="BATCHES",
        help="Number of batches after which the files are rewritten to one row per key.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="DIR", help="Folder where Spark keeps its state between runs.", show_default=False
    ),
]


def mirror(
    path: Annotated[
        Path, typer.Option("--path", metavar="DIR", help="Folder for the files; all executors must see it.")
    ],
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]…", help="schema.table; all captured tables by default.")
    ] = None,
    config: ConfigOption = None,
    compact_every: CompactEvery = COMPACT_EVERY,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when everything that the topics hold now is copied.")
    ] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Empty the copies and start over.")] = False,
    checkpoint: Checkpoint = None,
    records: Annotated[
        int, typer.Option("--records-per-batch", min=1, max=100_000_000, help="Records in one batch, at most.")
    ] = RECORDS_PER_BATCH,
    interval_s: Annotated[
        int, typer.Option("--interval", min=0, max=3600, metavar="SECONDS", help="Time between two batches.")
    ] = INTERVAL_S,
    master: Annotated[str, typer.Option("--master", help="Spark master URL; all cores here by default.")] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
    ] = None,
) -> None:
    """Copy topics into a lake of Parquet files with Spark, exactly once, until SIGTERM or Ctrl-C.

    Each table is exact by itself, but the tables do not share one LSN as those of cdc sink do.

    Exit code 2 when the copying cannot continue.

    Examples:

        cdc mirror -c shop.yaml --path /lake/shop

        cdc mirror public.orders -c shop.yaml --path /lake/shop --once

        cdc mirror -c shop.yaml --path /lake/shop --interval 60 --master spark://head:7077
    """
    loaded = load_config(config)
    spark, deployment = spark_settings(master, conf=conf or ()), describe_deployment(loaded, tables or ())
    job = MirrorJob(
        spark=spark,
        kafka=deployment.kafka,
        stream=deployment.stream,
        tables=deployment.tables,
        path=str(path.absolute()),
        compact_every=compact_every,
        checkpoint=None if checkpoint is None else str(checkpoint.absolute()),
        once=once,
        rebuild=rebuild,
        records_per_batch=records,
        interval_s=interval_s,
    )
    raise typer.Exit(run_job("mirror", job))
