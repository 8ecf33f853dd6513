"""The command line with all its commands imported, for tests that walk through it."""

from __future__ import annotations

from typing import Any

from cdc.cli.commands import COMMANDS, load


def loaded_commands() -> dict[str, Any]:
    """By name, each command or group of commands as typer's object, in the order of the help."""
    return {name: load(name) for name in COMMANDS}
