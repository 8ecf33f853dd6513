"""``cdc mirror``: copies state topics into tables of a lake, with as many executors as you like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdc.cli.options import ConfigOption, ConfOption, load_config
from cdc.contract.jobspec.mirror import (
    COMPACT_EVERY,
    INTERVAL_S,
    KEEP_DAYS,
    MAX_QUARANTINE,
    QUARANTINE,
    RECORDS_PER_BATCH,
    MirrorJob,
)
from cdc.ops.jobs.describe import describe_deployment, lake_target, refuse_misfits, spark_settings
from cdc.ops.jobs.launch import run_job

Target = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="FORMAT:DIR",
        help="parquet:DIR, delta:DIR or iceberg:DIR, a folder that all executors must see.",
    ),
]
KeepDays = Annotated[
    int | None,
    typer.Option(
        "--keep-days",
        min=1,
        max=3650,
        metavar="DAYS",
        help=f"Days for which former versions of Delta and Iceberg tables stay readable; {KEEP_DAYS} by default.",
        show_default=False,
    ),
]
Quarantine = Annotated[
    int,
    typer.Option(
        "--quarantine",
        min=0,
        max=MAX_QUARANTINE,
        metavar="KEYS",
        help="Keys of each Delta or Iceberg table that may stand aside because their newest records cannot be read.",
    ),
]
Records = Annotated[
    int, typer.Option("--records-per-batch", min=1, max=100_000_000, help="Records in one batch, at most.")
]
Interval = Annotated[
    int, typer.Option("--interval", min=0, max=3600, metavar="SECONDS", help="Time between two batches.")
]
CompactEvery = Annotated[
    int,
    typer.Option(
        "--compact-every",
        min=1,
        max=1000,
        metavar="BATCHES",
        help="Number of batches after which a table's small files are rewritten.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="DIR", help="Folder where Spark keeps its state between runs.", show_default=False
    ),
]


def mirror(
    to: Target,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]…", help="schema.table; all captured tables by default.")
    ] = None,
    config: ConfigOption = None,
    compact_every: CompactEvery = COMPACT_EVERY,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when everything that the topics hold now is copied.")
    ] = False,
    keep_days: KeepDays = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Empty the copies and start over.")] = False,
    quarantine: Quarantine = QUARANTINE,
    checkpoint: Checkpoint = None,
    records: Records = RECORDS_PER_BATCH,
    interval_s: Interval = INTERVAL_S,
    master: Annotated[str, typer.Option("--master", help="Spark master URL; all cores here by default.")] = "local[*]",
    conf: ConfOption = None,
) -> None:
    """Copy topics into Parquet files, Delta or Iceberg tables with Spark, exactly once, until SIGTERM or Ctrl-C.

    Delta and Iceberg tables come with _cdc_cuts, which names the versions that together are the source at one LSN. In
    Parquet files each table is exact by itself, but the tables do not share one LSN. A record that cannot be read stops
    the copying, unless --quarantine lets its key stand aside.

    Exit code 2 when the copying cannot continue.

    Examples:

        cdc mirror -c shop.yaml --to delta:/lake/shop

        cdc mirror public.orders -c shop.yaml --to delta:/lake/shop --once

        cdc mirror -c shop.yaml --to iceberg:/lake/shop --interval 60

        cdc mirror -c shop.yaml --to delta:/lake/shop --quarantine 10

        cdc mirror -c shop.yaml --to parquet:/lake/files --interval 60 --master spark://head:7077
    """
    lake, path = lake_target(to)
    refuse_misfits(lake, checkpoint, keep_days, quarantine)
    loaded = load_config(config)
    spark, deployment = spark_settings(master, conf=conf or ()), describe_deployment(loaded, tables or ())
    job = MirrorJob(
        spark=spark,
        kafka=deployment.kafka,
        stream=deployment.stream,
        tables=deployment.tables,
        format=lake,
        path=str(path.absolute()),
        compact_every=compact_every,
        keep_days=keep_days or KEEP_DAYS,
        quarantine=quarantine,
        checkpoint=None if checkpoint is None else str(checkpoint.absolute()),
        once=once,
        rebuild=rebuild,
        records_per_batch=records,
        interval_s=interval_s,
    )
    raise typer.Exit(run_job("mirror", job))
