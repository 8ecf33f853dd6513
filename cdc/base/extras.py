"""What the extras of this package bring: whether it is there, and how to get it. No package index has this package."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Final, Literal

from cdc.base.errors import ConfigError

Extra = Literal["embedded", "spark", "view"]

_DOWNLOADS: Final = ("filelock", "jgo", "platformdirs", "psutil")
_NEEDED: Final[Mapping[Extra, tuple[str, ...]]] = {
    "embedded": _DOWNLOADS,
    "spark": ("pandas", "pyspark", *_DOWNLOADS),
    "view": ("httptools", "lmdb", "redis", "sortedcontainers", "starlette", "uvicorn", "uvloop"),
}
"""By extra, the modules without which its commands cannot start."""


def install(extra: Extra) -> str:
    """The command that installs this package with an extra."""
    return (
        f"pip install '.[{extra}]' in a checkout, or pip install --find-links . 'cdc-bridge[{extra}]' beside the wheel"
    )


def require(extra: Extra, wanted_by: str) -> None:
    """Refuse a command whose extra is not installed.

    Raises:
        ConfigError: names what is missing, and the command that installs it.
    """
    missing = [name for name in _NEEDED[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{wanted_by} needs the extra {extra}; not installed: {', '.join(missing)}", remedy=install(extra)
        )
