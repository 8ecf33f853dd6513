"""What ``cdc mirror`` refuses before it asks any server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cdc.base.errors import ConfigError
from cdc.cli.mirror_command import mirror


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"to": "/lake"}, "--to /lake does not say what to write where"),
        ({"to": "delta:"}, "--to delta: does not say"),
        ({"to": "hudi:/lake"}, "--to hudi:/lake does not say"),
        ({"to": "delta:/lake", "checkpoint": Path("/notes")}, "--checkpoint is for Parquet files"),
        ({"to": "iceberg:/lake", "checkpoint": Path("/notes")}, "--checkpoint is for Parquet files"),
        ({"to": "parquet:/lake", "keep_days": 3}, "--keep-days is for tables"),
        ({"to": "parquet:/lake", "quarantine": 1}, "--quarantine is for tables"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        mirror(**options)
    assert refused.value.remedy


@pytest.mark.parametrize(("keys", "is_taken"), [("0", True), ("100", True), ("101", False), ("-1", False)])
def test_so_many_keys_may_stand_aside(keys: str, is_taken: bool, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(mirror)
    config = ["-c", str(tmp_path / "none.yaml")]
    tried = CliRunner().invoke(app, ["--to", "delta:/lake", "--quarantine", keys, *config])
    assert isinstance(tried.exception, ConfigError if is_taken else SystemExit), tried.output
    assert ("--quarantine" in tried.output) is not is_taken
