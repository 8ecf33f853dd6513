"""``cdc status``: shows how far each part is, even when some of them are down."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from cdc.base.config import Config
from cdc.base.printed_commands import for_file
from cdc.cli.options import ConfigOption, load_config
from cdc.ops.status.display import as_lines, as_table
from cdc.ops.status.document import Document, as_document, problems
from cdc.ops.status.parts import Status, StatusReader

_INTERVAL_S: Final = 1.0
"""The interval of --watch. More often would show nothing new: keepalives move an idle position about once a second."""


def status(
    config: ConfigOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every second, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; with --watch, one per line.")] = False,
) -> None:
    """Show how far slot, topics and replica are, and what is wrong with them. Changes nothing.

    Exit code 0 when all is well, 4 when a part does not answer or does not run, 3 when a part needs you. A replica
    table that is loading, catching up or rebuilding becomes exact by itself, so the code is still 0.

    Examples:

        cdc status -c shop.yaml

        cdc status -c shop.yaml --watch

        cdc status -c shop.yaml --json | jq .sink.lag_seconds

        cdc status -c shop.yaml --json | jq -e .sink.exact    # false, and exit code 1, until every table is exact
    """
    loaded = load_config(config)
    seen = _watch(loaded, config, as_json=as_json) if watch else _once(loaded, config, as_json=as_json)
    if codes := [each.exit_code for each in problems(seen)]:
        raise typer.Exit(max(codes))


def _once(config: Config, path: Path | None, *, as_json: bool) -> Status:
    seen, document = _look(config, path, StatusReader())
    console = Console(highlight=False)
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif console.is_terminal:
        console.print(as_table(document))
    else:
        typer.echo("\n".join(as_lines(document)))
    return seen


def _watch(config: Config, path: Path | None, *, as_json: bool) -> Status:
    """Look again and again until Ctrl-C; the last look decides the exit code."""
    console, reader = Console(highlight=False), StatusReader()
    seen, document = _look(config, path, reader)
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                if as_json:
                    typer.echo(json.dumps(document, ensure_ascii=False))
                elif console.is_terminal:
                    live.update(as_table(document), refresh=True)
                else:
                    typer.echo("\n".join(as_lines(document)) + "\n")
                time.sleep(_INTERVAL_S)
                seen, document = _look(config, path, reader)
    except KeyboardInterrupt:
        return seen


def _look(config: Config, path: Path | None, reader: StatusReader) -> tuple[Status, Document]:
    seen = reader.look(config)
    document = as_document(seen, now_us=time.time_ns() // 1000)
    for each in document["problems"]:
        each["remedy"] = for_file(each["remedy"], path)
    return seen, document
