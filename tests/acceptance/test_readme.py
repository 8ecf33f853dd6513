"""The README is a promise: what it names exists, what it shows works."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc import metrics
from cdc.app.cli import app
from cdc.config import load
from cdc.errors import CdcError
from tests.support.command_line import loaded_commands

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_GROUPS = "config|grants|stack|tables"
_OPTIONS = r"(?: -{1,2}[a-z-]+(?: [\w./]+)?)*"
COMMANDS = sorted(
    set(re.findall(rf"\bcdc ((?:{_GROUPS}) \w+|(?!(?:{_GROUPS})\b)[a-z]+(?:-[a-z]+)*)({_OPTIONS})", README))
)


ROOT_COMMAND: Any = SimpleNamespace(commands=loaded_commands())


def command_at(path: str) -> Any:
    command = ROOT_COMMAND
    for name in path.split():
        assert name in getattr(command, "commands", {}), f"cdc {path}: there is no {name!r}"
        command = command.commands[name]
    return command


def all_commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        return [path]
    return [each for name, child in command.commands.items() for each in all_commands(child, (*path, name))]


def test_it_names_every_command() -> None:
    named = {path for path, _ in COMMANDS} | {f"stack {name}" for name in ("down", "status")}
    assert {" ".join(path) for path in all_commands(ROOT_COMMAND)} <= named


@pytest.mark.parametrize(("path", "options"), COMMANDS)
def test_every_command_and_option_it_shows_exists(path: str, options: str) -> None:
    command = command_at(path)
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert set(re.findall(r"(?<= )-{1,2}[a-z][a-z-]*", options)) <= known


@pytest.mark.parametrize("path", all_commands(ROOT_COMMAND), ids=" ".join)
def test_help_ends_with_examples(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], terminal_width=120)
    assert shown.exit_code == 0, shown.output
    assert "Example" in shown.output
    assert f"cdc {' '.join(path)}" in shown.output


def test_every_make_target_it_shows_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test", "bench"} <= targets
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_every_file_it_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_exit_code_is_explained() -> None:
    explained = {int(code) for code in re.findall(r"^\| (\d) \|", README, re.MULTILINE)}

    def codes(error: type[CdcError]) -> set[int]:
        return {error.exit_code}.union(*(codes(child) for child in error.__subclasses__()))

    assert codes(CdcError) | {0} == explained


def test_every_metric_it_names_exists() -> None:
    registries = (metrics.BridgeMetrics().registry, metrics.SinkMetrics().registry)
    known = {metric.name for registry in registries for metric in registry.collect()}
    named = set(re.findall(r"\bcdc_(?:bridge|sink)_[a-z_]+", README))
    assert named
    assert named <= known


def test_its_configuration_loads(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    path = tmp_path / "shop.yaml"
    path.write_text(re.sub(r"/run/secrets/[a-z-]+", str(secret), shown[1]))
    config = load(path, {})
    assert config.name == "shop"
    assert config.sink is not None
