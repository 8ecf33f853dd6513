"""Every error and every alarm of the log says what to do about it, and what is printed to be pasted was executed.

That an error has a remedy at all is mypy's to see, for it must be given. What is computed is seen when errors are made:
``tests.support.remedies`` looks at each one of every test. A printed command or statement is executed by a test, in the
state that printed it, or a reason says why not.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

import cdc
from cdc.base.errors import CdcError, DecodeError, SourceUnavailable
from cdc.cli.commands import COMMANDS
from tests.architecture.tree import ROOT
from tests.support.command_line import loaded_commands
from tests.support.remedies import is_remedy

_ALARMS = {"warning", "error", "exception", "critical"}
_LOGGERS = {"log", "_log"}
_ELSEWHERE = {"cdc/base/broker_log.py"}
"""Its first line of an outage has the remedy in it: it writes through another library's logger."""
_PRINTED: Final = re.compile(rf"\bcdc (?:{'|'.join(COMMANDS)})\b[^`;:,\n#|()]*")
_REMEDIES: Final = "tests/integration/living/test_remedies.py"
_EXECUTED: Final = {
    "cdc run": _REMEDIES,
    "cdc sink": _REMEDIES,
    "cdc backfill X": _REMEDIES,
    "cdc backfill X --sweep": "tests/integration/bridge/backfill/test_command.py",
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
    "cdc quarantine list": _ONLY_SHOWS,
    "cdc quarantine retry": "tests/fault/test_replica_quarantine_kills.py runs it for the table",
    "cdc history X KEY": "KEY stands for a person's own key",
    "cdc grants kafka": _ONLY_SHOWS,
    "cdc init": "a sentence about where passwords go",
    "cdc init X": "tests/acceptance/test_init.py types it with its options",
    "cdc reconcile": _ONLY_SHOWS,
    "cdc reconcile --repair": "takes Spark: tests/integration/spark repairs by it",
    "cdc sink --rebuild": "of all tables, after a crash of the replica's server",
    "cdc serve": "tests/integration/views/http/test_end_to_end.py runs it over a damaged store",
    "cdc serve --no-feed": "names the option to leave out",
    "cdc topics lint": _ONLY_SHOWS,
    "cdc stack down": "tests/integration/lab/stack ends what it started by it",
    "cdc tables add X": "changes the file; tests/unit/base/config/test_edit.py",
    "cdc tables list": _ONLY_SHOWS,
    "cdc topics inspect": _ONLY_SHOWS,
}
"""Command → why nobody pastes it in the state that printed it."""
_STATEMENT: Final = re.compile(r"\b(?:ALTER|CREATE|DROP|GRANT|DELETE|UPDATE|SELECT) [^;]*;")
_SOURCE, _SINK, _BRIDGE = (
    "tests/integration/bridge/source",
    "tests/integration/sink/postgres",
    "tests/integration/bridge",
)
_STATEMENTS: Final = {
    "ALTER PUBLICATION X ADD TABLE ONLY X;": "tests/integration/living/test_publications.py",
    "ALTER PUBLICATION X DROP TABLE ONLY X;": "tests/integration/living/test_publications.py",
    "ALTER ROLE X BYPASSRLS;": "tests/integration/security/test_roles.py",
    "ALTER ROLE X REPLICATION;": f"{_BRIDGE}/test_bad_source.py",
    "ALTER SYSTEM SET hot_standby_feedback = on;": "tests/fault/test_failover.py",
    "ALTER SYSTEM SET idle_replication_slot_timeout = 0;": "tests/integration/ops/status/test_check.py",
    "ALTER SYSTEM SET max_replication_slots = X;": f"{_SOURCE}/test_slot.py",
    "ALTER SYSTEM SET max_slot_wal_keep_size = -1;": f"{_SOURCE}/test_slot.py",
    "ALTER SYSTEM SET max_wal_senders = X;": f"{_SOURCE}/test_slot.py",
    "ALTER SYSTEM SET sync_replication_slots = on;": "tests/fault/test_failover.py",
    "ALTER SYSTEM SET synchronized_standby_slots = 'X';": "tests/fault/test_failover.py",
    "ALTER SYSTEM SET wal_level = logical;": f"{_SOURCE}/test_slot.py",
    "ALTER TABLE X ADD UNIQUE (X);": f"{_SINK}/test_constraints.py",
    'ALTER TABLE X ALTER COLUMN X TYPE X COLLATE pg_catalog."default";': f"{_SINK}/test_altered.py",
    "ALTER TABLE X ALTER COLUMN X TYPE X USING X::X;": f"{_SINK}/test_key_types.py",
    "ALTER TABLE X DROP COLUMN X;": f"{_SINK}/test_wider.py",
    "ALTER TABLE X DROP CONSTRAINT X;": f"{_SINK}/test_altered.py",
    "ALTER TABLE X REPLICA IDENTITY FULL;": f"{_BRIDGE}/test_outbox.py",
    "CREATE ROLE X LOGIN REPLICATION;": f"{_SOURCE}/test_connect.py",
    "DELETE FROM X WHERE name = 'X' AND topic = 'X';": f"{_SINK}/test_placement.py",
    "DROP TABLE X;": f"{_SINK}/test_placement.py",
    "SELECT pg_drop_replication_slot('X');": f"{_BRIDGE}/test_publication_gaps.py",
    "SELECT pg_log_standby_snapshot();": f"{_BRIDGE}/test_standby_source.py",
    "SELECT pg_reload_conf();": "tests/integration/ops/status/test_check.py",
    "SELECT pg_switch_wal();": "tests/fault/test_failover.py",
    "SELECT pg_terminate_backend(X);": f"{_SINK}/test_locked.py",
    "SELECT pg_wal_replay_resume();": "tests/integration/ops/status/test_check_standby.py",
    "UPDATE X SET replica_table = 'X' WHERE topic = 'X';": f"{_SINK}/test_tables.py",
}
"""Statement → the test that executes it."""
_NO_STATEMENTS: Final = {
    "ALTER ROLE … SET session_replication_role = replica;": "one of two ways, and a superuser's; the other is executed",
    "ALTER TABLE … SET LOGGED brings a table back;": "a sentence",
}
"""Statement → why nobody executes it."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("cdc", "spark"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "/cdc/spark/" not in str(path):  # the link to the other folder
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def empty_ones(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Remedies that are given, and may come to nothing."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.keyword) or node.arg != "remedy":
            continue
        outcomes = [node.value]
        while outcomes:
            value = outcomes.pop()
            if isinstance(value, ast.IfExp):
                outcomes += [value.body, value.orelse]
            elif isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
                outcomes.append(value.values[-1])
            elif isinstance(value, ast.Constant) and not is_remedy(value.value):
                yield value.lineno, ast.unparse(node)
            elif isinstance(value, ast.JoinedStr):
                first = value.values[0]
                if isinstance(first, ast.Constant) and not is_remedy(first.value):
                    yield value.lineno, ast.unparse(node)


def alarms_without(tree: ast.AST) -> Iterator[tuple[int, str]]:
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_alarm(node.func) and not _has_remedy(node):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Attribute) and _is_alarm(node) and id(node) not in called:
            yield from _without_by_another_name(tree, node)


def _without_by_another_name(tree: ast.AST, alarm: ast.Attribute) -> Iterator[tuple[int, str]]:
    """``tell = log.error if … else log.debug``: then every call of ``tell`` needs one."""
    names = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(each is alarm for each in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        if isinstance(node, ast.Call) and is_call and not _has_remedy(node):
            yield node.lineno, ast.unparse(node)


def _is_alarm(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _ALARMS
        and isinstance(function.value, ast.Name)
        and function.value.id in _LOGGERS
    )


def _has_remedy(call: ast.Call) -> bool:
    """As a value of its own, or among those that the standard library's loggers take."""
    for keyword in call.keywords:
        if keyword.arg == "remedy":
            return True
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            return any(isinstance(key, ast.Constant) and key.value == "remedy" for key in keyword.value.keys)
    return False


def test_no_remedy_comes_to_nothing() -> None:
    found = [(path, *each) for path, tree in sources() for each in empty_ones(tree)]
    assert found == []


def test_every_alarm_in_the_log_says_what_to_do() -> None:
    found = [(path, *each) for path, tree in sources() if path not in _ELSEWHERE for each in alarms_without(tree)]
    assert found == []


def test_every_class_of_errors_asks_for_a_remedy_or_brings_one() -> None:
    classes, seen = [CdcError], set[type[CdcError]]()
    while classes:
        seen.add(kind := classes.pop())
        classes += kind.__subclasses__()
    assert len(seen) > 20
    for kind in seen:
        remedy = inspect.signature(kind).parameters.get("remedy")
        if remedy is not None:
            assert remedy.default is inspect.Parameter.empty or is_remedy(remedy.default), kind


def test_an_error_without_one_is_seen_when_it_is_made() -> None:
    for remedy in ("", " ", "nothing: it ends by itself"):
        with pytest.raises(AssertionError, match="SourceUnavailable without a remedy"):
            SourceUnavailable("it is gone", remedy=remedy)
    assert is_remedy(DecodeError("truncated").remedy)


def test_these_tests_see_what_they_are_for() -> None:
    tree = ast.parse(
        'log.warning("a")\n'
        'log.error("b", remedy=error.remedy or None)\n'
        "tell = log.error if bad else log.debug\n"
        'tell("c")\n'
        'raise SourceRefused("d", remedy=grant if lacks else "")\n'
        'raise SourceRefused("e", remedy=f"nothing: {what}")\n'
        'log.info("f")\n'
        'log.warning("g", remedy="run `cdc check`")\n'
    )
    assert [line for line, _ in alarms_without(tree)] == [1, 4]
    assert sorted(line for line, _ in empty_ones(tree)) == [2, 5, 6]
    assert Path(cdc.__file__).is_relative_to(ROOT)


def remedies() -> Iterator[tuple[str, str]]:
    """Where a remedy stands, and its text with X for what is filled in."""
    for path in sorted((ROOT / "cdc").rglob("*.py")):
        if path.relative_to(ROOT / "cdc").parts[:2] in (("lab", "learn"), ("lab", "demo"), ("lab", "stack")):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "remedy":
                yield f"{path.relative_to(ROOT)}:{node.value.lineno}", text_of(node.value)
            elif isinstance(node, ast.FunctionDef) and node.name == "remedy":
                for each in ast.walk(node):
                    if isinstance(each, ast.Return) and each.value is not None:
                        yield f"{path.relative_to(ROOT)}:{each.lineno}", text_of(each.value)
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
            groups = ("grants", "topics", "tables", "config", "stack", "quarantine")
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


def test_every_printed_statement_is_executed_or_has_a_reason() -> None:
    found = {statement: place for place, text in remedies() for statement in _STATEMENT.findall(text)}
    assert sorted(found) == sorted({**_STATEMENTS, **_NO_STATEMENTS})


def test_the_tests_that_execute_them_are_there() -> None:
    tests = {*_EXECUTED.values(), *_STATEMENTS.values()}
    assert [path for path in tests if not (ROOT / path).exists()] == []
