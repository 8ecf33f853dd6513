"""The command line imports what it runs, and no more."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc import __version__
from cdc.cli.commands import COMMANDS, LEARN, LOOK, OBSERVE, REPAIR, RUN
from tests.support.command_line import loaded_commands

CLIENTS = {"alembic", "confluent_kafka", "psycopg", "sqlalchemy"}
HEAVY = CLIENTS | {
    "asyncio",
    "cdc.base.config",
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
CDC = Path(sys.executable).parent / "cdc"

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
    assert "cdc.cli.cli" in loaded
    assert loaded & unwanted == set()


def test_the_list_tells_of_each_command_what_the_command_tells_of_itself() -> None:
    told = {name: inspect.cleandoc(command.help or "").split("\n\n")[0] for name, command in loaded_commands().items()}
    assert told == {name: command.summary for name, command in COMMANDS.items()}


def test_version() -> None:
    done = subprocess.run([sys.executable, "-m", "cdc", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"cdc {__version__}\n"


def cdc(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", **variables}
    return subprocess.run([CDC, *words], capture_output=True, text=True, env=environment, check=False)


def test_the_list_begins_with_what_runs() -> None:
    shown = cdc("-h")
    assert shown.returncode == 0
    places = [shown.stdout.index(f"─ {group} ─") for group in (RUN, OBSERVE, REPAIR, LOOK, LEARN)]
    assert places == sorted(places)
    assert list(COMMANDS)[:2] == ["run", "sink"]
    assert cdc("grants", "sink", "-h").stdout == cdc("grants", "sink", "--help").stdout


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("cdc ba", "backfill"),
        ("cdc backfill --sw", "--sweep"),
        ("cdc topics li", "lint"),
        ("cdc grants s", "source\nsink"),
    ],
)
def test_a_shell_completes_commands_and_options(typed: str, proposed: str) -> None:
    place = str(len(typed.split()) - 1)
    found = cdc(_CDC_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=place)
    assert (found.returncode, found.stdout.strip()) == (0, proposed), found.stderr


def test_the_shell_is_told_how_to_complete(tmp_path: Path) -> None:
    def typed(option: str) -> str:
        # A bash of its own: which shell it is, the command finds out from the process that it was typed into.
        done = subprocess.run(
            ["bash", "-c", f"{CDC} {option}; exit $?"],
            capture_output=True, text=True, env={**os.environ, "HOME": str(tmp_path)}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "complete -o default -F _cdc_completion cdc" in typed("--show-completion")
    typed("--install-completion")
    assert "bash_completions/cdc.sh" in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize(("said", "meant"), [("replica", "sink"), ("target", "sink"), ("bridge", "source")])
def test_a_part_under_another_name_is_suggested(said: str, meant: str) -> None:
    done = cdc("grants", said)
    assert done.returncode == 2
    assert f"Did you mean '{meant}'?" in done.stderr


def test_history_takes_its_key_once() -> None:
    for words, told in ((), "needs one KEY"), (("1", "--key", "1"), "needs one KEY, but has two"):
        done = cdc("history", "public.orders", *words)
        assert done.returncode == 2
        assert told in done.stderr
        assert "remedy: cdc history public.orders KEY" in done.stderr


@pytest.mark.parametrize(
    "error",
    ["MemoryError", "SystemError('of a library') from MemoryError()", 'RuntimeError("can\'t start new thread")'],
)
def test_a_lack_of_memory_is_told(error: str) -> None:
    code = f"from cdc.cli import cli\ndef app(): raise {error}\ncli.app = app\ncli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == (
        "error: this process gets no more memory, or no more threads\n  remedy: raise its limits of memory and of "
        "threads, and start it again: nothing is lost. How much it needs is in docs/operations.md, under Sizing\n"
    )
