"""Every error and every line of the log that is a warning or worse says what to do about it.

That an error has a remedy at all is mypy's to see, for it must be given. What is computed is seen when errors are made:
``tests.support.remedies`` looks at each one of every test.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import cdc
from cdc.errors import CdcError, DecodeError, SourceUnavailable
from tests.architecture.tree import ROOT
from tests.support.remedies import is_remedy

_ALARMS = {"warning", "error", "exception", "critical"}
_LOGGERS = {"log", "_log"}
_ELSEWHERE = {"cdc/broker_log.py"}
"""Its first line of an outage has the remedy in it: it writes through another library's logger."""


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
