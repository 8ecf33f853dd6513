"""``cdc demo``: the options, the servers and the exit code of the demo."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from cdc.base import extras, interrupts
from cdc.base.errors import ConfigError
from cdc.contract.record import EnvelopeName, FormatName

_DOES_NOT_HOLD = 1


def demo(
    rows: Annotated[
        int, typer.Option(min=10_000, help="How many rows the shop has, roughly, before bridge and sink start.")
    ] = 250_000,
    changes: Annotated[
        int, typer.Option(min=1_000, help="Number of row changes to make after these rows are loaded.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the traffic: the same seed makes the same transactions.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running after the proof, until Ctrl-C.")
    ] = False,
    report: Annotated[Path, typer.Option(help="Folder for the report of Spark's comparison.", metavar="FOLDER")] = Path(
        "demo-report"
    ),
    backend: Annotated[
        Literal["auto", "embedded", "docker"],
        typer.Option(help="Where the servers come from; auto: CDC_PG_URL and CDC_KAFKA, else Docker, else embedded."),
    ] = "auto",
    format_: Annotated[
        FormatName,
        typer.Option("--format", help="How values are written; all but json start a schema registry as well."),
    ] = "json",
    envelope: Annotated[
        EnvelopeName,
        typer.Option(help="What a value is: plain the row and nothing else, debezium the row in Debezium's event."),
    ] = "plain",
) -> None:
    """Run everything once on real servers, and prove that nothing is lost, duplicated or reordered.

    It starts PostgreSQL and Kafka, fills a shop with rows, and starts bridge and sink. It changes rows, even while they
    are loading, and kills both daemons with SIGKILL. Then it compares source, topics and replica row by row. Spark
    compares them again and writes a report. Exit code 0 only if all of them are equal.

    Examples:

        cdc demo

        cdc demo --rows 500000 --changes 60000 --seed 7

        cdc demo --keep

        cdc demo --format avro

        cdc demo --format protobuf

        cdc demo --envelope debezium --format avro
    """
    if envelope != "plain" and format_ not in ("json", "avro"):
        raise ConfigError(
            f"--envelope {envelope} is written in JSON or Avro, not in {format_}",
            remedy="leave out --format or --envelope",
        )
    interrupts.raise_at_every_polite_end()
    try:
        holds = _run(_DemoOptions(rows, changes, seed, keep, report.resolve(), backend, format_, envelope))
    except KeyboardInterrupt:
        raise typer.Exit(interrupts.EXIT_CODE) from None
    if not holds:
        raise typer.Exit(_DOES_NOT_HOLD)


class _DemoOptions(NamedTuple):
    """The options."""

    rows: int
    changes: int
    seed: int
    keep: bool
    report: Path
    backend: Literal["auto", "embedded", "docker"]
    format: FormatName
    envelope: EnvelopeName


def _run(wanted: _DemoOptions) -> bool:
    extras.require("embedded", "cdc demo")
    if wanted.format != "json":
        extras.require("registry", f"cdc demo --format {wanted.format}")
    if wanted.format == "protobuf":
        extras.require("protobuf", "cdc demo --format protobuf")
    # Imported here, because the servers' libraries are optional.
    from rich.console import Console
    from rich.markup import escape

    from cdc.lab.demo.place import place
    from cdc.lab.demo.run import Demo
    from cdc.lab.demo.screen import Screen
    from cdc.lab.demo.second_opinion import SecondOpinion
    from cdc.lab.demo.summary import show, where_next
    from cdc.lab.stack import open_stack

    with ExitStack() as exits:
        screen = exits.enter_context(Screen(Console()))
        rows, changes, seed = wanted.rows, wanted.changes, wanted.seed
        screen.say(f"{rows:,} rows, {changes:,} changes, seed {seed}; starting PostgreSQL and Kafka")

        def say(line: str) -> None:
            screen.say(escape(line))

        has_registry = wanted.format != "json"
        stack = exits.enter_context(open_stack(backend=wanted.backend, with_registry=has_registry, say=say))
        here = exits.enter_context(place(stack, wanted.format, wanted.envelope))
        demo = Demo(here, screen, rows, changes, seed)
        exits.enter_context(demo.running())
        with SecondOpinion(here, screen, wanted.report) as opinion:
            outcome = demo.prove(when_mirrored=opinion.begin)
            show(outcome, screen)
            agrees = opinion.agrees()
        where_next(here, screen, kept=wanted.keep)
        if wanted.keep:
            demo.watch()
        return outcome.holds and agrees
