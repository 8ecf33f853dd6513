"""Checks that an extra of this package is installed, or says how to install it; the package is on no package index."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Final, Literal

from cdc.base.errors import ConfigError

Extra = Literal["duckdb", "embedded", "iceberg", "mariadb", "protobuf", "registry", "spark", "view"]

_DOWNLOADS: Final = ("filelock", "jgo", "platformdirs", "psutil")
_NEEDED: Final[Mapping[Extra, tuple[str, ...]]] = {
    "duckdb": ("duckdb", "duckdb_engine"),
    "embedded": _DOWNLOADS,
    "iceberg": ("pyiceberg",),
    "mariadb": ("pymysql",),
    "protobuf": ("grpc_tools",),
    "registry": ("attrs", "authlib", "cachetools", "fastavro", "jsonschema_rs"),
    "spark": ("pandas", "pyspark", *_DOWNLOADS),
    "view": ("httptools", "lmdb", "redis", "sortedcontainers", "starlette", "uvicorn", "uvloop"),
}
"""The modules that the commands of each extra need to start."""


def install(extra: Extra) -> str:
    """Returns the command that installs this package with an extra."""
    return (
        f"pip install '.[{extra}]' in a checkout, or pip install --find-links . 'cdc-bridge[{extra}]' beside the wheel"
    )


def require(extra: Extra, wanted_by: str) -> None:
    """Check that an extra is installed.

    Raises:
        ConfigError: it is not; names the missing modules and the command that installs them.
    """
    missing = [name for name in _NEEDED[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{wanted_by} needs the extra {extra}; not installed: {', '.join(missing)}", remedy=install(extra)
        )
