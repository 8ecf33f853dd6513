"""No module in C reads or writes memory that is not its own: its random tests, built to watch each access.

Python's own allocator hands out parts of large blocks, within which nothing would be noticed; so it is replaced by the
one that the compiler watches.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.install.environments import copy_project


def _library() -> Path | None:
    """Of the address sanitizer; None without gcc, or without the library."""
    if shutil.which("gcc") is None:
        return None
    done = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    found = Path(done.stdout.strip())
    return found if found.is_absolute() and found.exists() else None


LIBRARY = _library()

pytestmark = [
    pytest.mark.soak,
    pytest.mark.long,
    pytest.mark.skipif(LIBRARY is None, reason="no gcc with libasan here"),
]


def test_random_rows_and_lines_touch_no_foreign_memory(tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    flags = "-fsanitize=address -fno-omit-frame-pointer -O1 -g"
    _run(project, "setup.py", "build_ext", "--inplace", CC="gcc", CFLAGS=flags, LDFLAGS="-fsanitize=address")
    tests = sorted(str(each.relative_to(project)) for each in project.glob("tests/property/test_compiled_*.py"))
    built = list(project.glob("cdc/**/_*.so"))
    assert len(built) == len(list(project.glob("cdc/**/_*.pyx"))) > 0
    found = _run(
        project,
        *("-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-rs", "-s", *tests),
        LD_PRELOAD=str(LIBRARY),
        PYTHONMALLOC="malloc",
        ASAN_OPTIONS="detect_leaks=0:halt_on_error=1",
    )
    assert " passed" in found
    assert "skipped" not in found


def _run(project: Path, *arguments: str, **variables: str) -> str:
    # The sample: what takes minutes for 100,000 lines takes much longer while each access is watched
    environment = {name: value for name, value in os.environ.items() if name not in ("SOAK", "CDC_PURE_PYTHON")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**environment, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.stdout[-4000:], done.stderr[:8000])
    return done.stdout
