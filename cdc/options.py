"""Command-line options that several commands share, defined once, and the configuration that they lead to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from cdc.config import Config, load
from cdc.daemon.logs import hide

DEFAULT_PATH = Path("cdc.yaml")

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="CDC_CONFIG",
        metavar="PATH",
        help="The configuration file; cdc.yaml in the current folder unless given.",
        show_default=False,
    ),
]

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LogLevelOption: TypeAlias = Annotated[
    LogLevel, typer.Option("--log-level", envvar="CDC_LOG_LEVEL", help="Show messages from this level on.")
]


def load_config(path: Path | None) -> Config:
    """The configuration of a command: the file given, else ``cdc.yaml`` here, under this process's environment.

    Raises:
        ConfigError: lists all that is wrong.
    """
    config = load(path or DEFAULT_PATH, os.environ)
    hide(config.secrets())
    return config
