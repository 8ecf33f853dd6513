"""The project's files, as the rules in this folder look at them."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_OURS = ("cdc", "migrations", "spark", "tests")


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that belongs to the project: what git knows or would add; without git, all but hidden folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        names = [
            path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return tuple(sorted(path for path in names if path.is_file()))


def texts() -> Iterator[tuple[Path, str]]:
    """Path below the root, and content, of every text file."""
    for path in tracked():
        try:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def modules(*folders: str) -> list[Path]:
    """Python files in these top-level folders, below the root."""
    wanted = folders or _OURS
    found = [path.relative_to(ROOT) for path in tracked() if path.suffix == ".py"]
    return [path for path in found if path.parts[0] in wanted]


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file below the root."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))
