"""What ``cdc reconcile --lake`` refuses before it asks any server."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.base.errors import ConfigError
from cdc.cli.reconcile_command import reconcile


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"lake": "/lake"}, "--lake /lake does not name a lake"),
        ({"lake": "delta:"}, "--lake delta: does not name a lake"),
        ({"lake": "parquet:/lake"}, "cannot compare Parquet files: they have no cut"),
        ({"lake": "delta:/lake", "replica": True}, "--lake takes the place of the replica"),
        ({"lake": "delta:/lake", "replica": False}, "--lake takes the place of the replica"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        reconcile(**options)
    assert refused.value.remedy
