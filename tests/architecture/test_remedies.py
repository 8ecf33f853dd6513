"""Every command that a message prints exists, with its options; a test executes it, or a reason says why not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

from cdc.app.commands import COMMANDS
from tests.architecture.tree import ROOT
from tests.support.command_line import loaded_commands

_PRINTED: Final = re.compile(rf"\bcdc (?:{'|'.join(COMMANDS)})\b[^`;:,\n#|()]*")
_REMEDIES: Final = "tests/integration/living/test_remedies.py"
_EXECUTED: Final = {
    "cdc run": _REMEDIES,
    "cdc sink": _REMEDIES,
    "cdc backfill X": _REMEDIES,
    "cdc backfill X --sweep": "tests/integration/backfill/test_command.py",
    "cdc sink --rebuild X": _REMEDIES,
    "cdc check": "tests/acceptance/test_init.py",
    "cdc status": "tests/acceptance/test_init.py",
}
"""Command → the test that pastes it."""

_ONLY_SHOWS: Final = "only shows something"
_NOT_EXECUTED: Final = {
    "cdc backfill": "a sentence about what a backfill records, or about following one",
    "cdc backfill --help": _ONLY_SHOWS,
    "cdc backfill --list": _ONLY_SHOWS,
    "cdc backfill --sweep": "of all tables; the state is another program's doing that nobody can tell from outside",
    "cdc backfill --where": "stands for a person's own condition",
    "cdc config schema": _ONLY_SHOWS,
    "cdc config show": _ONLY_SHOWS,
    "cdc get": _ONLY_SHOWS,
    "cdc history X KEY": "KEY stands for a person's own key",
    "cdc init": "a sentence about where passwords go",
    "cdc init X": "tests/acceptance/test_init.py types it with its options",
    "cdc mirror --to --path": "an example of options; takes Spark",
    "cdc reconcile": _ONLY_SHOWS,
    "cdc reconcile --repair": "takes Spark: tests/integration/spark repairs by it",
    "cdc sink --rebuild": "of all tables, after a crash of the replica's server",
    "cdc serve": "tests/integration/serve/test_end_to_end.py runs it over a damaged store",
    "cdc serve --no-feed": "names the option to leave out",
    "cdc topics lint": _ONLY_SHOWS,
    "cdc stack down": "tests/integration/stack ends what it started by it",
    "cdc tables add X": "changes the file; tests/unit/config/test_edit.py",
    "cdc tables list": _ONLY_SHOWS,
    "cdc topics inspect": _ONLY_SHOWS,
}
"""Command → why nobody pastes it in the state that printed it."""


def remedies() -> Iterator[tuple[str, str]]:
    """Where a remedy stands, and its text with X for what is filled in."""
    for path in sorted((ROOT / "cdc").rglob("*.py")):
        if path.relative_to(ROOT).parts[1] in ("learn", "demo", "stack"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "remedy":
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", text_of(node.value)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("Problem", "Finding"):
                for argument in node.args[2:4]:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text_of(argument)


def text_of(node: ast.expr) -> str:
    """What is written out of a string, X for the rest."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(each) for each in node.values)
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return f"{text_of(node.body)}\n{text_of(node.orelse)}"
    return "X"


def printed() -> dict[str, str]:
    """Command → where it is printed, as far as it is written out: words of prose behind it are left out."""
    found = {}
    for place, text in remedies():
        for match in _PRINTED.findall(text):
            words = match.split()
            groups = ("grants", "topics", "tables", "config", "stack")
            kept = words[: 3 if words[1] in groups else 2]
            kept += [each for each in words[len(kept) :] if each.startswith("--") or each in ("X", "KEY")]
            found[" ".join(kept)] = place
    return found


def test_every_printed_command_exists() -> None:
    root: Any = SimpleNamespace(commands=loaded_commands())
    for line, place in printed().items():
        command, words = root, line.split()[1:]
        while hasattr(command, "commands"):
            name = words.pop(0)
            assert name in command.commands, f"{place}: {line}"
            command = command.commands[name]
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        assert {each for each in words if each.startswith("-")} <= {*known, "--help"}, f"{place}: {line}"


def test_every_printed_command_is_executed_or_has_a_reason() -> None:
    found = printed()
    assert len(found) > 5
    unknown = {line: place for line, place in found.items() if line not in {**_EXECUTED, **_NOT_EXECUTED}}
    assert not unknown


def test_the_tests_that_execute_them_are_there() -> None:
    assert [path for path in _EXECUTED.values() if not (ROOT / path).exists()] == []
