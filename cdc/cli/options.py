"""Command-line options that several commands share, and the configuration that they lead to."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from cdc.base.config import Config, load
from cdc.base.config.unread import warnings
from cdc.base.daemon.logs import hide
from cdc.base.printed_commands import name_file

DEFAULT_PATH = Path("cdc.yaml")

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="CDC_CONFIG",
        metavar="PATH",
        help="The configuration file; cdc.yaml in the current folder by default.",
        show_default=False,
    ),
]

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LogLevelOption: TypeAlias = Annotated[
    LogLevel, typer.Option("--log-level", envvar="CDC_LOG_LEVEL", help="Show messages of this level and above.")
]

ConfOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
]


def load_config(path: Path | None) -> Config:
    """Load the configuration of a command from a file, else ``cdc.yaml`` here, and from the environment.

    It warns on standard error about ``CDC_`` variables that nothing reads.

    Raises:
        ConfigError: the configuration is invalid; the message lists everything that is wrong.
    """
    for warning in warnings(os.environ):
        sys.stderr.write(f"warning: {warning}\n")
    name_file(path)
    return load_again(path)


def load_again(path: Path | None) -> Config:
    """Load the file again in the same process, without the warnings: the file may change, the environment does not.

    Raises:
        ConfigError: the configuration is invalid; the message lists everything that is wrong.
    """
    config = load(path or DEFAULT_PATH, os.environ)
    hide(config.secrets())
    return config
