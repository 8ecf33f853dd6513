"""Which modules in C there are, and when they are used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.base.compiled import TWINS, language, source_hash
from tests.architecture.tree import ROOT


def test_every_twin_is_listed() -> None:
    found = {".".join(each.relative_to(ROOT).with_suffix("").parts) for each in (ROOT / "cdc").rglob("_*.pyx")}
    assert found == set(TWINS)


@pytest.mark.skipif(bool(os.environ.get("CDC_PURE_PYTHON")), reason="this run does without them")
def test_with_a_compiler_the_hot_path_is_in_c() -> None:
    expected = "C" if any(map(shutil.which, ("cc", "gcc", "clang"))) else "Python"
    assert language() == expected, "`make clean`, and install again"


def test_they_can_be_avoided(tmp_path: Path) -> None:
    code = (
        "from cdc.base import compiled; compiled.avoid(); print(compiled.language(), compiled.twin(compiled.TWINS[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "Python None\n"


def test_a_module_that_is_older_than_its_source_is_not_used_and_told_once(tmp_path: Path) -> None:
    """After an update of a checkout, its modules may do what the Python code does not expect any more."""
    shutil.copytree(ROOT / "cdc", tmp_path / "cdc", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "from cdc.base import compiled\n"
        "print([name for name in compiled.TWINS if compiled.twin(name) is None], compiled.language())"
    )

    def said() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    if language() == "Python":
        pytest.skip("nothing was compiled")
    assert said() == ["[] C"]
    for name in ("cdc/contract/_header.pxd", "cdc/sink/postgres/_fresh.pyx"):
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write("\n# another line\n")
    *warnings, found = said()
    stale = ["cdc.bridge.backfill._lines", "cdc.bridge.order._frames", "cdc.sink.postgres._fresh"]
    assert found == f"{stale} Python"
    assert len(warnings) == 1
    assert "build_ext --inplace" in warnings[0]


def test_the_hash_covers_what_a_source_names() -> None:
    assert len({source_hash(each) for each in (ROOT / "cdc").rglob("_*.pyx")}) == len(TWINS)
