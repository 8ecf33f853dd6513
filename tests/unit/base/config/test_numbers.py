"""Where a number is wanted, ``yes`` is none: it would be port 1, or one partition for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.base.errors import ConfigError
from tests.unit.base.config.test_options import DEFAULTS, load_with

NUMBERS = ["http.bridge_port", "http.sink_port"]
NUMBERS += [key for key, value in DEFAULTS.items() if type(value) in (int, float)]


@pytest.mark.parametrize("key", NUMBERS)
def test_yes_is_no_number(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: write a number; found True"):
        load_with(tmp_path, key, True)
