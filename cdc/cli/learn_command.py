"""``cdc learn``: lists the lessons, and runs lessons on servers that are started for them."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from typing import Annotated, Literal

import typer

from cdc.base import extras, interrupts
from cdc.base.errors import ConfigError

_ALL = "all"


def learn(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]…", help="Lessons to run, or `all`; without a name, list them.", show_default=False
        ),
    ] = None,
    backend: Annotated[
        Literal["auto", "embedded", "docker"],
        typer.Option(help="Where the servers come from; auto: CDC_PG_URL and CDC_KAFKA, else Docker, else embedded."),
    ] = "auto",
) -> None:
    """Run lessons about compacted topics, with real records, segments and offsets, on a broker started for them.

    A lesson takes some seconds. It shows what happens on the broker, and checks each thing that it says. Exit code 1
    when something is not as the lesson says.

    Examples:

        cdc learn

        cdc learn compaction

        cdc learn tombstones rebuild --backend embedded

        cdc learn all
    """
    from cdc.lab.learn.lessons import LESSONS

    if not names:
        for name, lesson in LESSONS.items():
            typer.echo(f"  {name:<12}{lesson.question}")
        typer.echo("\ncdc learn NAME runs one of them, cdc learn all runs all of them.")
        return
    wanted = list(LESSONS) if _ALL in names else names
    if unknown := [name for name in wanted if name not in LESSONS]:
        raise ConfigError(f"there is no lesson {unknown[0]!r}", remedy=f"choose from {', '.join(LESSONS)}, or all")
    interrupts.raise_at_every_polite_end()
    try:
        _run(wanted, backend)
    except KeyboardInterrupt:
        raise typer.Exit(interrupts.EXIT_CODE) from None


def _run(names: list[str], backend: Literal["auto", "embedded", "docker"]) -> None:
    extras.require("embedded", "cdc learn")
    extras.require("view", "cdc learn")
    # Imported here, because the servers' libraries are optional.
    from rich.console import Console

    from cdc.base.daemon.logs import configure
    from cdc.lab.learn.classroom import Classroom
    from cdc.lab.learn.lessons import LESSONS
    from cdc.lab.learn.page import LessonPage
    from cdc.lab.stack import Postgres, open_kafka, open_postgres

    configure("error")
    began = time.monotonic()
    with ExitStack() as servers:
        kafka = servers.enter_context(closing(open_kafka(backend=backend, say=typer.echo)))

        def postgres() -> Postgres:
            return servers.enter_context(closing(open_postgres(backend=backend, say=typer.echo)))

        with Classroom(kafka.bootstrap, LessonPage(Console()), postgres) as room:
            for name in names:
                room.page.title(name, LESSONS[name].question)
                LESSONS[name].teach(room)
    count = f"{len(names)} lessons" if len(names) > 1 else "1 lesson"
    typer.echo(f"\n{count} in {time.monotonic() - began:.0f} s, including the start of the servers.")
