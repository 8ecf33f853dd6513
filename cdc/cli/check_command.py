"""``cdc check``: finds everything that would keep bridge or sink from working, and the command that fixes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc.base.printed_commands import pasteable
from cdc.bridge.source.preflight import Finding
from cdc.cli.options import ConfigOption, load_config
from cdc.ops.setup.steps import rights
from cdc.ops.status.checkup import as_document, check_all

_FAILED: Final = 3
"""Exit code: the operator must change something. The ``…Refused`` errors have the same code."""

_COLOURS: Final[Mapping[str, str]] = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}


def check(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as one JSON object.")] = False,
) -> None:
    """Check server, standby, rights, tables, publication, slot, topics and replica before the start. Changes nothing.

    Each WARN and FAIL comes with the command that fixes it. Exit code 0 when nothing fails, 3 when something does.

    Examples:

        cdc check -c shop.yaml

        cdc check -c shop.yaml --json | jq '.findings[] | select(.level == "FAIL")'
    """
    loaded = load_config(config)
    parts = {
        part: [replace(each, remedy=pasteable(each.remedy)) for each in found]
        for part, found in check_all(loaded).items()
    }
    commands = list(rights(config, loaded, parts))
    console = Console(highlight=False)
    if as_json:
        typer.echo(json.dumps(as_document(parts), indent=2, ensure_ascii=False))
    elif console.is_terminal:
        console.print(as_table(parts))
        console.print(as_remedies(parts), soft_wrap=True)
    else:
        typer.echo("\n".join(as_lines(parts)))
    if commands and not as_json:
        typer.echo(
            "\n".join(["", "# Grant all missing rights; to review the SQL first, leave out `| psql …`:", *commands])
        )
    if any(finding.level == "FAIL" for findings in parts.values() for finding in findings):
        raise typer.Exit(_FAILED)


def as_lines(parts: Mapping[str, Sequence[Finding]]) -> list[str]:
    """Returns plain text: one line per finding, with its remedy indented below, and a summary at the end."""
    lines = []
    for part, findings in parts.items():
        for each in findings:
            lines.append(f"{each.level:<4}  {part:<6}  {each.subject}: {each.text}")
            if each.remedy:
                lines.append(f"              remedy: {each.remedy}")
    return [*lines, _summary(parts)]


def as_table(parts: Mapping[str, Sequence[Finding]]) -> Table:
    """Returns the findings for a terminal, without remedies: a command that is wrapped in a cell cannot be copied."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("Part")
    table.add_column("Subject", overflow="fold", max_width=40)
    table.add_column("Finding", overflow="fold")
    for part, findings in parts.items():
        for each in findings:
            table.add_row(Text(each.level, style=_COLOURS[each.level]), part, Text(each.subject), Text(each.text))
        table.add_section()
    return table


def as_remedies(parts: Mapping[str, Sequence[Finding]]) -> Text:
    """Returns the remedy of each FAIL and WARN, each on a line of its own, then the summary."""
    text = Text()
    for part, findings in parts.items():
        for each in findings:
            if each.remedy:
                text.append(f"{each.level:<4}", style=_COLOURS[each.level]).append(f"  {part}, {each.subject}\n")
                text.append(f"      {each.remedy}\n", style="cyan")
    return text.append(f"\n{_summary(parts)}")


def _summary(parts: Mapping[str, Sequence[Finding]]) -> str:
    levels = [each.level for findings in parts.values() for each in findings]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in ("OK", "WARN", "FAIL"))
    return f"{counts}: {'not ready' if 'FAIL' in levels else 'ready to run'}"
