"""README and docs/ are a promise: what they name exists, what they show works."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from cdc.base.config import Config, load
from cdc.base.config.environment import origins
from cdc.base.errors import CdcError
from cdc.cli.cli import app
from cdc.spark.report.words import MEANING
from tests.architecture.pages import Page, commands, page, pages
from tests.architecture.tree import ROOT
from tests.benchmarks.__main__ import SECTIONS
from tests.support.command_line import loaded_commands
from tests.support.metric_names import known_metrics

ROOT_COMMAND: Any = SimpleNamespace(commands=loaded_commands())
EVERY_PAGE = pytest.mark.parametrize("shown", pages(), ids=lambda each: str(each.path))


def command_at(arguments: list[str]) -> tuple[Any, list[str]]:
    """The command that these arguments name, and what is left for it."""
    command, rest = ROOT_COMMAND, list(arguments)
    while hasattr(command, "commands"):
        name = rest.pop(0) if rest else ""
        assert name in command.commands, f"cdc {' '.join(arguments)}: there is no command {name!r}"
        command = command.commands[name]
    return command, rest


def all_commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        return [path]
    return [each for name, child in command.commands.items() for each in all_commands(child, (*path, name))]


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key of the configuration, as a file spells it."""
    for name, field in model.model_fields.items():
        inner: object = field.annotation
        if isinstance(inner, UnionType):
            inner = next(iter(get_args(inner)))
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{field.alias or name}", field


KEYS = dict(keys(Config))
SECTION = "|".join(name for name, field in Config.model_fields.items() if name != "name")


def default_of(key: str) -> str:
    """As the page writes it."""
    field = KEYS[key]
    if key in ("source.slot", "source.publication"):
        return "`cdc_<name>`"
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, tuple):
        return f"`[{', '.join(value)}]`"
    return f"`{value}`" if value and isinstance(value, str) else f"`{json.dumps(value)}`"


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len(page("README.md").text.splitlines()) <= 150


def test_the_readme_leads_to_every_page() -> None:
    linked = {path for path, _ in page("README.md").links}
    assert {str(each.path) for each in pages()} - {"README.md"} <= linked


@EVERY_PAGE
def test_every_link_leads_somewhere(shown: Page) -> None:
    anchors = {str(each.path): each.anchors for each in pages()}
    assert [path for path, _ in shown.links if not (ROOT / path).exists()] == []
    assert [f"{path}#{to}" for path, to in shown.links if to and to not in anchors.get(path, ())] == []


@EVERY_PAGE
def test_every_file_it_names_exists(shown: Page) -> None:
    named = [span for span in shown.spans if re.match(r"(cdc|spark|migrations|tests|config|docs)(/[\w.-]+)+$", span)]
    assert [name for name in named if not (ROOT / name).exists()] == []


@EVERY_PAGE
def test_every_command_line_is_understood(shown: Page) -> None:
    for arguments in commands("".join(shown.fences("sh"))):
        command, rest = command_at(arguments)
        command.make_context(arguments[0], rest)


@EVERY_PAGE
def test_every_command_in_a_sentence_exists(shown: Page) -> None:
    for span in shown.spans:
        for arguments in commands(span):
            if not arguments or "…" in arguments:  # a schema or a header is called cdc, too
                continue
            command, rest = command_at(arguments)
            known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
            assert {each for each in rest if each.startswith("-")} <= {*known, "--help"}, span


def test_every_command_is_explained() -> None:
    named = {tuple(arguments) for span in page("docs/commands.md").spans for arguments in commands(span)}
    assert set(all_commands(ROOT_COMMAND)) <= named


@pytest.mark.parametrize("path", all_commands(ROOT_COMMAND), ids=" ".join)
def test_help_ends_with_examples_that_are_understood(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], terminal_width=120)
    assert shown.exit_code == 0, shown.output
    assert "Example" in shown.output
    assert f"cdc {' '.join(path)}" in shown.output
    command, _ = command_at(list(path))
    examples = command.help.partition("Example")[2]
    for arguments in commands(examples.partition("\n")[2]):
        example, rest = command_at(arguments)
        example.make_context(arguments[0], rest)


@EVERY_PAGE
def test_every_make_target_exists(shown: Page) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    code = "\n".join([*shown.fences("sh"), *shown.spans])
    named = {arguments[0] for arguments in commands(code, "make") if arguments}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_the_readme_shows_the_two_commands() -> None:
    assert list(commands("".join(page("README.md").fences("sh")), "make")) == [["demo"], ["test"]]


def test_every_exit_code_is_explained() -> None:
    codes = [row[0] for row in page("docs/commands.md").rows("exit code")]

    def exit_codes(error: type[CdcError]) -> set[int]:
        return {error.exit_code}.union(*(exit_codes(child) for child in error.__subclasses__()))

    assert {str(code) for code in exit_codes(CdcError) | {0, 130, 143}} == set(codes)


def test_every_metric_is_explained() -> None:
    explained = {row[0].strip("`"): row[1] for row in page("docs/operations.md").rows("metric of")}
    assert explained == known_metrics()


@EVERY_PAGE
def test_every_metric_it_names_exists(shown: Page) -> None:
    assert set(re.findall(r"\bcdc_(?:bridge|sink|serve|feed)_[a-z_]+", shown.text)) <= set(known_metrics())


def test_every_configuration_key_is_explained_with_its_default() -> None:
    explained = {row[0].strip("`"): row[1] for row in page("docs/configuration.md").rows("key")}
    assert explained == {key: default_of(key) for key in KEYS}


@EVERY_PAGE
def test_every_configuration_key_it_names_exists(shown: Page) -> None:
    named = {match[1] for span in shown.spans if (match := re.match(rf"((?:{SECTION})\.[a-z_]+)\b(?!/)", span))}
    variables = dict.fromkeys(re.findall(r"\bCDC_[A-Z]+__[A-Z_]+", shown.text), "x")
    assert {*named, *origins(variables)} - set(KEYS) == set()


@EVERY_PAGE
def test_every_piece_of_configuration_is_understood(shown: Page) -> None:
    for block in shown.fences("yaml"):
        for section, options in yaml.safe_load(block).items():
            named = {section} if not isinstance(options, dict) else {f"{section}.{option}" for option in options}
            assert named <= set(KEYS)


@pytest.mark.parametrize("path", ["README.md", "docs/start.md"])
def test_its_configuration_loads(path: str, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    file = tmp_path / "shop.yaml"
    file.write_text(re.sub(r"/run/secrets/[a-z-]+", str(secret), page(path).fences("yaml")[0]))
    config = load(file, {})
    assert config.name == "shop"
    assert config.sink is not None


def test_every_class_of_a_reconciliation_is_explained() -> None:
    assert {row[0].strip("`") for row in page("docs/reconcile.md").rows("class")} == set(MEANING)


def test_every_benchmark_is_shown() -> None:
    shown = set(re.findall(r"-m tests\.benchmarks (\w+)", page("docs/benchmarks.md").text))
    assert shown | {"spark"} == set(SECTIONS), "spark is make bench-spark"
