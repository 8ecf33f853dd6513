"""Every dependency is used, and CONTRIBUTING.md says what for."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from tests.architecture.tree import ROOT, modules, parse

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

IMPORTED_AS = {"confluent-kafka": "confluent_kafka", "prometheus-client": "prometheus_client", "pyyaml": "yaml"}


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements]


@pytest.mark.parametrize("name", names(PROJECT["dependencies"]))
def test_dependency_is_imported(name: str) -> None:
    module = IMPORTED_AS.get(name, name.replace("-", "_"))
    for path in modules("cdc", "migrations"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import) and any(alias.name.split(".")[0] == module for alias in node.names):
                return
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == module:
                return
    pytest.fail(f"{name} is imported nowhere in cdc/ or migrations/: take it out of pyproject.toml")


@pytest.mark.parametrize("name", sorted({*names(PROJECT["dependencies"])}))
def test_dependency_has_a_reason(name: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \|", CONTRIBUTING, re.MULTILINE)
    listed = {part.split("[")[0].strip() for row in rows for part in row.split(",")}
    assert name in listed, "give it a row in CONTRIBUTING.md"


def test_reasons_are_for_dependencies_that_are_there() -> None:
    table = CONTRIBUTING.split("| package | for |")[1].split("\n\n")[0]
    listed = {
        part.split("[")[0].strip()
        for row in re.findall(r"^\| ([^|-][^|]*) \|", table, re.MULTILINE)
        for part in row.split(",")
    }
    assert listed == set(names(PROJECT["dependencies"]))


@pytest.mark.parametrize(
    "name", names([r for extra in ("embedded", "dev") for r in PROJECT["optional-dependencies"][extra]])
)
def test_extra_is_mentioned(name: str) -> None:
    if name == "cdc-bridge" or name.startswith("types-"):
        return
    assert f"`{name}`" in CONTRIBUTING
