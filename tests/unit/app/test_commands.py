"""The command line imports what it runs, and no more."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from cdc import __version__
from cdc.app.commands import COMMANDS
from tests.support.command_line import loaded_commands

CLIENTS = {"alembic", "confluent_kafka", "psycopg", "sqlalchemy"}
HEAVY = CLIENTS | {
    "asyncio",
    "cdc.config",
    "msgspec",
    "orjson",
    "pandas",
    "prometheus_client",
    "pydantic",
    "pydantic_settings",
    "pyspark",
    "structlog",
    "yaml",
}
REPLICA = {"alembic", "sqlalchemy"}

PROBE = """
import sys
from cdc.__main__ import main
try:
    main()
finally:
    sys.stderr.write(" ".join(sys.modules))
"""


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("--help",), HEAVY),
        (("--version",), HEAVY),
        (("config", "show", "--help"), CLIENTS),
        (("stack", "up", "--help"), CLIENTS),
        (("learn", "--help"), CLIENTS),
        (("demo", "--help"), CLIENTS),
        (("topics", "inspect", "--help"), CLIENTS - {"confluent_kafka"}),
        (("run", "--help"), REPLICA),
        (("grants", "source", "--help"), REPLICA),
        (("reconcile", "--help"), REPLICA | {"pyspark", "pandas"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",  # a set has no order: workers would differ
)
def test_it_imports_only_what_it_needs(arguments: tuple[str, ...], unwanted: set[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert done.stdout
    assert "cdc.app.cli" in loaded
    assert loaded & unwanted == set()


def test_the_list_tells_of_each_command_what_the_command_tells_of_itself() -> None:
    told = {name: inspect.cleandoc(command.help or "").split("\n\n")[0] for name, command in loaded_commands().items()}
    assert told == {name: command.summary for name, command in COMMANDS.items()}


def test_version() -> None:
    done = subprocess.run([sys.executable, "-m", "cdc", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"cdc {__version__}\n"
