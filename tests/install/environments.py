"""Builds of this project, and virtual environments that hold one build and no more than it asks for."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from tests.architecture.tree import ROOT, tracked

_PROJECT = "cdc-bridge"


def copy_project(target: Path) -> Path:
    """The project's files as a clone has them, links included: a build leaves its traces where it builds."""
    for path in tracked():
        place = target / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    for link in (ROOT / "cdc").rglob("*"):
        if link.is_symlink():
            (target / link.relative_to(ROOT)).symlink_to(link.readlink())
    return target


NO_COMPILER: Final = {"CC": "/nowhere/cc"}
"""Environment variables for a machine that has none."""


def build(project: Path, kind: str, target: Path, **variables: str) -> Path:
    """Build a ``wheel`` or an ``sdist`` with the setuptools that runs here; nothing is downloaded."""
    code = f"import sys, setuptools.build_meta as b; print('built', b.build_{kind}(sys.argv[1]))"
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)],
        cwd=project,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.rpartition("built ")[2].strip()


class Environment:
    """A virtual environment.

    Args:
        folder: where to make it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, symlinks=True)

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return next(self.folder.glob("lib/python*/site-packages"))

    def pip_install(self, *arguments: str | Path, **variables: str) -> None:
        """By the pip that runs here, into this environment."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python"), "install", "-q"]
        done = subprocess.run(
            [*pip, "--disable-pip-version-check", *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def borrow(self, *extras: str) -> None:
        """Link what this project and these extras ask for, and what that asks for, from where the tests run."""
        for distribution in closure(_PROJECT, frozenset(extras)):
            for top in {
                each.parts[0] for each in distribution.files or () if each.parts[0] not in ("..", "__pycache__")
            }:
                if not (self.site / top).exists():  # extras ask for some of the same
                    (self.site / top).symlink_to(Path(str(distribution.locate_file(top))))

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, outside the project, with nothing of the caller's Python."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CDC_"))}
        return subprocess.run(
            [self.folder / "bin" / arguments[0], *arguments[1:]],
            cwd=self.folder,
            env={**inherited, "COLUMNS": "200", **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )


def closure(name: str, extras: frozenset[str]) -> Iterator[importlib.metadata.Distribution]:
    """The distributions that a distribution needs with these extras, itself left out, each once."""
    seen: set[tuple[str, frozenset[str]]] = set()
    given: set[str] = {name}
    waiting = [(name, extras)]
    while waiting:
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        distribution = importlib.metadata.distribution(asked[0])
        if asked[0] not in given:
            given.add(asked[0])
            yield distribution
        for text in _requirements(asked[0], distribution):
            needed = Requirement(text)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in asked[1] | {""}):
                waiting.append((needed.name.lower(), frozenset(needed.extras)))


def _requirements(name: str, distribution: importlib.metadata.Distribution) -> list[str]:
    """Of this project as its file says now, not as it said when it was installed here."""
    if name != _PROJECT:
        return distribution.requires or []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"].items()
    marked = [f'{each.partition(";")[0]}; extra == "{extra}"' for extra, wanted in optional for each in wanted]
    return [*project["dependencies"], *marked]
