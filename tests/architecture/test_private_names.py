"""Tests use public names of the product alone: what begins with an underscore may change, and no test has to know.

A limit that a test sets is a public constant. A test that would look inside watches an effect instead, or hands in what
the object is made with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.tree import modules, parse

THEIRS: Final = frozenset(
    {
        # A NamedTuple's, which has no other place for them
        *("_asdict", "_fields", "_make", "_replace"),
        # PySpark's: the way into its JVM
        *("_gateway", "_jsc"),
        "_labelnames",  # prometheus_client's
        "_split_scope",  # pytest-xdist's, made to be overridden
    }
)
"""Private names of other libraries that there is no public way to."""
OWNERS: Final = frozenset({"self", "cls", "KafkaError"})
"""Whose private names a test may use: its own, and librdkafka's error codes, of which many begin with an underscore."""
SETTERS: Final = frozenset({"delattr", "getattr", "hasattr", "setattr"})


def is_private(name: str) -> bool:
    """Whether it begins with an underscore and is neither Python's (``__init__``) nor another library's."""
    return name.startswith("_") and not name.endswith("__") and name not in THEIRS


def own_names(tree: ast.AST) -> set[str]:
    """Attributes of the classes that a module defines, which its functions may use, too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(body=body):
                found |= {each.name for each in body if isinstance(each, ast.FunctionDef)}
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=attr, ctx=ast.Store()):
                found.add(attr)
    return found


def imported(node: ast.AST) -> list[str]:
    """What an import takes from the product, with the modules on the way."""
    match node:
        case ast.ImportFrom(module=str(module), names=names):
            found = [f"{module}.{each.name}" for each in names]
        case ast.Import(names=names):
            found = [each.name for each in names]
        case _:
            return []
    return [each for each in found if each.split(".")[0] == "cdc"]


def private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Those of others that a module uses, with their lines; also in programs that stand in its texts."""
    ours = own_names(tree)
    for node in ast.walk(tree):
        yield from (
            (node.lineno, name)
            for name in imported(node)
            if isinstance(node, ast.stmt) and any(map(is_private, name.split(".")))
        )
        match node:
            case ast.Attribute(value=ast.Name(id=owner)) if owner in OWNERS:
                pass
            case ast.Attribute(attr=attr, value=value) if is_private(attr):
                # A subclass here that calls the method which it overrides names the product's
                if attr not in ours or (isinstance(value, ast.Call) and ast.unparse(value) == "super()"):
                    yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=args) if called in SETTERS:
                texts = [str(each.value) for each in args[:2] if isinstance(each, ast.Constant)]
                # A name that is computed may be any that stands in a text of the module
                for text in texts or [each for each in texts_of(tree) if each.isidentifier()]:
                    if is_private(text.rpartition(".")[2]):
                        yield node.lineno, text
            case ast.Constant(value=str(text)) if "cdc" in text and "import" in text:
                yield from ((node.lineno, name) for _, name in in_program(text))


def texts_of(tree: ast.AST) -> list[str]:
    return [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def in_program(text: str) -> list[tuple[int, str]]:
    """Private names in a text that is a program which imports the product."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    is_one = any(imported(node) for node in ast.walk(tree))
    return list(private_names(tree)) if is_one else []


def test_tests_use_no_private_names_of_the_product() -> None:
    others = [path for path in modules("tests") if path.name != Path(__file__).name]
    assert len(others) > 500
    found = [f"{path}:{line}: {name}" for path in others for line, name in private_names(parse(path))]
    assert not found, (
        "a limit that tests set is a public constant; else watch an effect, or hand in what it is made with:\n"
        + "\n".join(found)
    )


def test_the_rule_finds_what_it_is_for() -> None:
    def found(text: str) -> list[str]:
        return [name for _, name in private_names(ast.parse(text))]

    assert found("from cdc.bridge.batch import _MAX_ROWS") == ["cdc.bridge.batch._MAX_ROWS"]
    assert found("import cdc.bridge.order._frames") == ["cdc.bridge.order._frames"]
    assert found("bridge._batch.max_bytes") == ["bridge._batch"]
    assert found("monkeypatch.setattr('cdc.bridge.batch._MAX_ROWS', 1)") == ["cdc.bridge.batch._MAX_ROWS"]
    assert found("monkeypatch.setattr(batch, '_MAX_ROWS', 1)") == ["_MAX_ROWS"]
    assert found("for name in ('_read', 'look'):\n    setattr(board, name, made)") == ["_read"]
    assert found("program = '''from cdc.bridge import batch\nbatch._MAX_ROWS = 1\n'''") == ["batch._MAX_ROWS"]
    assert found("class Mine(Broker):\n    def _run(self):\n        super()._run()") == ["super()._run"]
    assert found("class Mine:\n    def _run(self):\n        self._at = 1\nMine()._run()\nMine()._at") == []
    assert found("KafkaError._FATAL, row._replace(id=1), cdc.__version__, setattr(A, '__init__', made)") == []
