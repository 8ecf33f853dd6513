"""House rules that a machine can keep. Each failure says what to do instead."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.base import crashpoints
from tests.architecture.tree import ROOT, modules, parse, texts, tracked
from tests.support.scheduling import LONG_FILES

MAX_ROOM_LINES = 4_500
MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
SHORT_MODULE_LINES, MAX_SHORT_MODULES = 80, 40
MAX_PARAMETERS = 6

# path::function → lines. An entry may shrink or go, never grow or be added: split the function instead.
LONG_FUNCTIONS: dict[str, int] = {}

BANNED_NAMES = {
    "utils": "name the module after what it knows, e.g. naming.py",
    "util": "name the module after what it knows",
    "helpers": "name the module after what it does, e.g. waiting.py",
    "helper": "name the module after what it does",
    "common": "put it in the lowest room that both users may import, under its own name",
    "manager": "say what it manages and how: registry, supervisor, publisher …",
    "misc": "name the module after what it knows",
    "base": "prefer a Protocol in ports.py",
}

# Written in pieces, so that this file does not trip over itself.
BANNED_WORDS = {
    "TO" + "DO": "do it, or open an issue",
    "FIX" + "ME": "fix it, or open an issue",
    "XX" + "X": "say what is wrong, or open an issue",
}

REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("npmjs", "org"),
        ("registry", "docker"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("confluent", "io/maven"),
        ("proxy", "golang", "org"),
    )
]

CODE = {".py", ".pyx", ".pxd", ".html", ".css", ".js"}
REPLACED = re.compile(r'\.setattr\(\s*"(cdc\.[\w.]+)"')
HOME = re.compile(r"(?<![\w.~}])/(?:home|Users|root)/[A-Za-z0-9_.-]+")
MAY_SLEEP = {
    Path("tests/support/waiting.py"),
    Path("tests/unit/world/test_machine.py"),  # its programs sleep, in virtual time
}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def calls(path: Path, name: str, owner: str | None = None) -> Iterator[ast.Call]:
    """Calls of ``name(…)``, or of ``owner.name(…)`` when there is an owner."""
    for node in ast.walk(parse(path)):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=called) if called == name and owner is None:
                yield node
            case ast.Attribute(attr=called, value=ast.Name(id=of)) if called == name and of == owner:
                yield node


def rooms() -> dict[str, Path]:
    """Folders of code by name, each without those that are rooms of their own."""
    found = {path.parent for path in tracked() if path.name == "__init__.py"}
    return {str(each.relative_to(ROOT)): each for each in found if each.relative_to(ROOT).parts[0] in ("cdc", "spark")}


def lines_of(room: Path) -> int:
    """Of its modules, and of what is no module and lies in folders of it, like pages."""
    inner = [each.parent for each in room.glob("*/__init__.py")]
    code = (path for path in room.rglob("*") if path.suffix in CODE and not set(inner) & set(path.parents))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in code)


def test_rooms_are_small() -> None:
    """A room is understood as a whole, so it has to be read as a whole."""
    sizes = {name: lines_of(folder) for name, folder in rooms().items()}
    assert len(sizes) > 40
    assert sizes["cdc/bridge"] > 1_000
    large = {name: lines for name, lines in sizes.items() if lines > MAX_ROOM_LINES}
    assert not large, f"over {MAX_ROOM_LINES} lines, make two rooms of it, each with one task: {large}"


def test_modules_are_short() -> None:
    long = {str(path): len((ROOT / path).read_text().splitlines()) for path in modules()}
    long = {path: lines for path, lines in long.items() if lines > MAX_MODULE_LINES}
    assert not long, f"over {MAX_MODULE_LINES} lines, split by what each part knows: {long}"


def test_functions_are_short() -> None:
    long = {
        f"{path}::{name}": lines for path in modules() for name, lines in functions(path) if lines > MAX_FUNCTION_LINES
    }
    grown = {name: lines for name, lines in long.items() if lines > LONG_FUNCTIONS.get(name, MAX_FUNCTION_LINES)}
    assert not grown, f"over {MAX_FUNCTION_LINES} lines; one verb per function: {grown}"
    healed = sorted(set(LONG_FUNCTIONS) - set(long))
    assert not healed, f"short again, take them off the list: {healed}"


def constructors(path: Path) -> Iterator[tuple[str, int]]:
    """Classes, and how many parameters their ``__init__`` has."""
    for node in ast.walk(parse(path)):
        if not isinstance(node, ast.ClassDef):
            continue
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                yield node.name, len(each.args.args) + len(each.args.kwonlyargs) - 1


def test_constructors_of_the_bridge_are_handed_little() -> None:
    """Who needs more does two things, or lacks a type for what belongs together."""
    many = {
        f"{path}::{name}": parameters
        for path in modules("cdc")
        if path.parts[1] == "bridge"
        for name, parameters in constructors(path)
        if parameters > MAX_PARAMETERS
    }
    assert not many, f"over {MAX_PARAMETERS} parameters: {many}"


def test_module_names_say_something() -> None:
    found = {
        str(path): BANNED_NAMES[part]
        for path in modules()
        for part in (*path.parts[:-1], path.stem)
        if part in BANNED_NAMES and (part != "base" or part == path.stem)  # a folder may be called so, no module
    }
    assert not found, found


def test_a_class_name_is_used_once() -> None:
    """Whoever searches for a class by its name finds one, and a traceback says which one it was."""
    places: dict[str, list[str]] = {}
    for path in modules("cdc", "spark"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path}:{node.lineno}")
    assert len(places) > 500
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert not shared, f"name each after what sets it apart: {shared}"


def test_fragments_stand_with_what_uses_them() -> None:
    """A short module with one importer is read with it; one that is a thing of its own may stay, and most are not."""
    importers: dict[str, set[Path]] = {}
    ours = [path for path in modules("cdc", "spark") if path.name != "__init__.py"]
    for path in modules("cdc", "spark"):
        for node in ast.walk(parse(path)):
            names = [each.name for each in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in {origin + each for each in names} | {origin.rstrip(".")}:
                importers.setdefault(name, set()).add(path)
    found = [
        str(path)
        for path in ours
        if len((ROOT / path).read_text().splitlines()) < SHORT_MODULE_LINES
        and len(
            importers.get(".".join((*(("cdc",) if path.parts[0] == "spark" else ()), *path.with_suffix("").parts)), ())
        )
        == 1
    ]
    assert 10 < len(found) <= MAX_SHORT_MODULES, f"merge some into the module that imports them: {found}"


def test_nothing_is_left_to_do() -> None:
    found = {
        f"{path}: {word}": instead
        for path, text in texts()
        for word, instead in BANNED_WORDS.items()
        if re.search(rf"\b{word}\b", text)
    }
    assert not found, found


def test_only_app_prints() -> None:
    found = [
        f"{path}:{call.lineno}" for path in modules("cdc") if path.parts[1] != "cli" for call in calls(path, "print")
    ]
    assert not found, f"log it, or return it to app: {found}"


def test_tests_wait_on_conditions() -> None:
    # Benchmarks sample and pace; they assert nothing that a pause could hide.
    waiting = [path for path in modules("tests") if path not in MAY_SLEEP and path.parts[1] != "benchmarks"]
    found = [f"{path}:{call.lineno}" for path in waiting for call in calls(path, "sleep", "time")]
    found += [f"{path}:{call.lineno}" for path in waiting for call in calls(path, "sleep")]
    assert not found, f"poll a condition with tests.support.waiting: {found}"


def test_no_registry_host_is_named() -> None:
    found = [
        f"{path}: {host}" for path, text in texts() if path.name != "LICENSE" for host in REGISTRY_HOSTS if host in text
    ]
    assert not found, f"clients of registries bring their own addresses: {found}"


def test_no_path_of_a_machine() -> None:
    found = [f"{path}: {match[0]}" for path, text in texts() for match in HOME.finditer(text)]
    if len(ROOT.parts) > 2:
        found += [f"{path}: {ROOT}" for path, text in texts() if re.search(rf"{re.escape(str(ROOT))}\b", text)]
    assert not found, found


def test_crash_points_exist() -> None:
    visited: dict[str, str] = {}
    for path in modules("cdc", "spark", "tests"):
        for call in (*calls(path, "reach"), *calls(path, "reach", "crashpoints")):
            if call.args and isinstance(call.args[0], ast.Constant):
                visited[str(call.args[0].value)] = f"{path}:{call.lineno}"
    unknown = {name: where for name, where in visited.items() if name not in crashpoints.NAMES}
    assert not unknown, f"add them to cdc/base/crashpoints.py, or correct them: {unknown}"
    idle = sorted(crashpoints.NAMES - set(visited))
    assert not idle, f"named in cdc/base/crashpoints.py and reached nowhere: {idle}"


@pytest.mark.parametrize("path", [path for path in modules("cdc", "migrations") if path.name != "__init__.py"], ids=str)
def test_modules_say_what_they_are(path: Path) -> None:
    assert ast.get_docstring(parse(path)), "begin with a sentence: what comes in, what goes out, what it may not know"


def test_long_files_are_there() -> None:
    gone = [each for each in LONG_FILES if not (ROOT / each).is_file()]
    assert not gone, f"moved or gone, so nothing sorts them any more (tests.support.scheduling.py): {gone}"


def test_what_tests_replace_is_there() -> None:
    """A name that has moved is found here in a second, and not by the ring whose test replaces it."""
    found = {name for path in sorted((ROOT / "tests").rglob("*.py")) for name in REPLACED.findall(path.read_text())}
    assert found
    places = [name.rpartition(".") for name in sorted(found)]
    gone = [f"{module}.{name}" for module, _, name in places if not hasattr(pkgutil.resolve_name(module), name)]
    assert not gone, f"tests replace what there is not: {gone}"


def test_what_tests_import_is_there() -> None:
    """A ring that is run seldom names what was moved, too; found here in a second, and not by the ring."""
    top = {path: names_of(path) for path in modules("cdc", "spark")}
    gone = []
    for path in modules("tests"):
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("cdc."):
                continue
            place = Path(*(node.module or "").split(".")[1 if (node.module or "").startswith("cdc.spark") else 0 :])
            known = top.get(place.with_suffix(".py")) or top.get(place / "__init__.py", set())
            inside = {each.stem for each in (ROOT / place).glob("*") if (ROOT / place).is_dir()}
            gone += [f"{path}: {node.module}.{each.name}" for each in node.names if each.name not in known | inside]
    assert not gone, f"tests import what there is not: {gone}"


def names_of(path: Path) -> set[str]:
    """What a module defines or imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found
