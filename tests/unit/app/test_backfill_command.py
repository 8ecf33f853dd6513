"""Options of ``cdc backfill`` that contradict one another are refused before anything is asked."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from cdc.app.backfill.command import backfill
from cdc.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--where", "id = 1"], "--where without a table"),
        (["public.items", "--where", "id = 1", "--sweep"], "--sweep with --where"),
        (["--list", "--cancel"], "only one of --list, --pause, --resume and --cancel"),
        (["--pause", "--rate", "5"], "belong to a new backfill"),
        (["--list", "--sweep"], "belong to a new backfill"),
    ],
)
def test_contradictions(arguments: list[str], words: str) -> None:
    app = typer.Typer()
    app.command()(backfill)
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigError)
    assert words in error.message
    assert error.remedy
