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
        """Where it is defined: its class, or its module."""
        module = parse(Path(self.file))
        return definition(module, self.owner) if self.owner else module

    def calls(self) -> set[str]:
        """What it calls itself, and through private functions of its class and module."""
        module = parse(Path(self.file))
        waiting, seen, called = [self.name, "__init__"], set[str](), set[str]()
        while waiting:
            name = waiting.pop()
            seen.add(name)
            for node in (each for scope in {self.scope(), module} for each in functions(scope, name)):
                named = names_in(node)
                called |= named
                waiting += [each for each in named - seen if each.startswith("_") and not each.startswith("__")]
        return called


def definition(scope: ast.AST, name: str) -> ast.AST:
    return next(node for node in ast.walk(scope) if isinstance(node, ast.ClassDef) and node.name == name)


def functions(scope: ast.AST, name: str) -> list[ast.AST]:
    """Those of this name that stand in a class or module, not deeper."""
    return [node for node in ast.iter_child_nodes(scope) if isinstance(node, ast.FunctionDef) and node.name == name]


def names_in(node: ast.AST) -> set[str]:
    attributes = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return attributes | {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


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
        assert not step.name.startswith("_"), f"{step}: name the public function that leads there"
        assert functions(step.scope(), step.name), step
        assert number == 0 or step.name in called, f"nothing before calls {step}"
        called |= step.calls()
