"""docs/row.md: a row can be followed from the socket to the replica by reading calls."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.pages import page
from tests.architecture.tree import parse

PAGE = page("docs/row.md")


class Step(NamedTuple):
    """A function on the way: its file, its class (empty for none), its name."""

    file: str
    owner: str
    name: str

    def scope(self) -> ast.AST:
        """Where its calls may stand: its class, or itself."""
        return next(node for node in ast.walk(parse(Path(self.file))) if is_definition(node, self.owner or self.name))


def is_definition(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name


def ways() -> list[list[Step]]:
    """The tables of the page."""
    found = []
    for section in PAGE.text.split("\n## ")[1:]:
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
        owners = [(file.strip("`"), *function.strip("`").rpartition(".")[::2]) for file, function, _ in rows]
        found.append([Step(*each) for each in owners])
    return found


@pytest.mark.parametrize("way", ways(), ids=["to Kafka", "needs", "to the replica"])
def test_every_function_is_there_and_called_by_one_before_it(way: list[Step]) -> None:
    assert len(way) > 5
    called: set[str] = set()
    for number, step in enumerate(way):
        scope = step.scope()
        assert any(is_definition(node, step.name) for node in ast.walk(scope)), step
        assert number == 0 or step.name in called, f"nothing before calls {step}"
        called |= {node.attr for node in ast.walk(scope) if isinstance(node, ast.Attribute)}
        called |= {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)}
