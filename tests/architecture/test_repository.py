"""What lies in the repository: sources, at the places where a stranger looks for them."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cdc.base.compiled import TWINS
from tests.architecture.tree import ROOT, tracked

AT_THE_ROOT: Final = {
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"),
    *("cdc", "spark", "migrations", "tests", "config", "docs"),
    *("pyproject.toml", "setup.py", "MANIFEST.in", "Makefile", "development.lock", "docker-compose.yml"),
    *(".ci", ".dockerignore", ".github", ".gitignore", ".pre-commit-config.yaml"),
}
MOST_BYTES: Final = 500_000
_PICTURES: Final = {".png"}
"""Shown by pages; everything else is text, and a change of it can be read."""


def test_the_root_holds_what_is_listed() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} == AT_THE_ROOT


def test_nothing_is_large_or_binary() -> None:
    large = [path for path in tracked() if path.stat().st_size > MOST_BYTES]
    texts = [path for path in tracked() if path.suffix not in _PICTURES and not _is_bytes(path)]
    binary = [path for path in texts if b"\0" in path.read_bytes()]
    assert (large, binary) == ([], [])


def _is_bytes(path: Path) -> bool:
    """Recorded bytes of the wire, which tests decode."""
    return path.is_relative_to(ROOT / "tests" / "golden")


def test_every_module_in_c_has_its_types() -> None:
    for name in TWINS:
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".pyx").exists()
        assert path.with_suffix(".pyi").exists(), f"{name}: write what it takes and gives, for mypy and for readers"


def test_the_tests_that_the_makefile_names_exist() -> None:
    """Else `make test` would fail at its end, with no more than pytest's exit code.

    Without parameters: their ids change with marks and defaults.
    """
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\S+))?", makefile)
    assert any(function for _, function in named)
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8"), function


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_run_targets_that_there_are(name: str) -> None:
    workflow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8"))
    lines = [
        line.strip()
        for job in workflow["jobs"].values()
        for step in job["steps"]
        for line in step.get("run", "").splitlines()
    ]
    assert lines
    for line in lines:
        words = line.split()
        if words[0] == "make":
            target = subprocess.run(["make", "-n", *words[1:2]], cwd=ROOT, capture_output=True, text=True)
            assert target.returncode == 0, f"{line}: {target.stderr}"
        elif words[0].startswith("."):
            assert (ROOT / words[0]).exists(), line


def test_the_matrix_has_every_python_that_is_claimed() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = "Programming Language :: Python :: 3."
    claimed = {each.rpartition(" ")[2] for each in project["classifiers"] if each.startswith(version)}
    assert claimed
    assert claimed <= set(workflow["jobs"]["check"]["strategy"]["matrix"]["python"])


def test_the_lock_holds_what_the_project_asks_for() -> None:
    """``make lock`` writes it anew."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "development.lock").read_text(encoding="utf-8").splitlines()
    locked = {name: rest.partition(" ")[0] for name, _, rest in (line.partition("==") for line in lines)}
    asked = [Requirement(each) for each in project["dependencies"]]
    asked += [Requirement(each) for group in project["optional-dependencies"].values() for each in group]
    assert len(asked) > 30
    for each in asked:
        if each.name == project["name"]:
            continue
        version = locked[canonicalize_name(each.name)]
        assert version in each.specifier, f"{each} is locked to {version}: make lock"
