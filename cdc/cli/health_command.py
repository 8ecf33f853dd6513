"""``cdc health``: finds what topics hold besides the newest rows, and whether the cleaner keeps up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc.cli.options import ConfigOption, ConfOption, load_config
from cdc.contract.jobspec.health import TOP_KEYS, HealthJob, HealthTopic
from cdc.contract.naming import schemas_topic
from cdc.ops.jobs.describe import describe_deployment, kafka_settings, spark_settings
from cdc.ops.jobs.launch import run_job


def health(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]…", help="schema.table; all captured tables by default.")
    ] = None,
    config: ConfigOption = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic of another program; may be repeated.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON.", show_default=False)
    ] = None,
    html_path: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the report as one page.", show_default=False)
    ] = None,
    top: Annotated[
        int, typer.Option("--top", min=1, max=1000, help="How many of the busiest keys to name.")
    ] = TOP_KEYS,
    master: Annotated[str, typer.Option("--master", help="Spark master URL; all cores here by default.")] = "local[*]",
    conf: ConfOption = None,
) -> None:
    """Read topics with Spark from beginning to end, and report garbage, tombstones, skew and strange keys.

    Exit code 0 when healthy, 1 when something is wrong that you have to fix, 2 when a topic could not be read.

    Examples:

        cdc health -c shop.yaml

        cdc health public.orders -c shop.yaml --html health.html --json health.json

        cdc health -c shop.yaml --topic dbserver1.inventory.orders
    """
    loaded = load_config(config)
    spark = spark_settings(master, conf=conf or ())
    topics = [HealthTopic(topic=name) for name in topic or ()]
    described: dict[str, Any] = {"kafka": kafka_settings(loaded)}
    # Topics of other programs need no source, so they can be read while PostgreSQL is down.
    if tables or not topics:
        deployment = describe_deployment(loaded, tables or ())
        topics = [*(HealthTopic(topic=table.topic, table=table) for table in deployment.tables), *topics]
        described["schemas_topic"] = schemas_topic(loaded.name)
    job = HealthJob(
        spark=spark,
        topics=tuple(topics),
        json_path=None if json_path is None else str(json_path.absolute()),
        html_path=None if html_path is None else str(html_path.absolute()),
        top=top,
        **described,
    )
    raise typer.Exit(run_job("health", job))
