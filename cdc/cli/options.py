"""Command-line options that several commands share, defined once, and the configuration that they lead to."""

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

    Variables that nothing reads are told on standard error.

    Raises:
        ConfigError: lists all that is wrong.
    """
    for warning in warnings(os.environ):
        sys.stderr.write(f"warning: {warning}\n")
    name_file(path)
    return load_again(path)


def load_again(path: Path | None) -> Config:
    """As ``load_config``, in a process that has told of its environment: that does not change, the file may.

    Raises:
        ConfigError: lists all that is wrong.
    """
    config = load(path or DEFAULT_PATH, os.environ)
    hide(config.secrets())
    return config
