"""What ``cdc mirror`` refuses before it asks any server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
