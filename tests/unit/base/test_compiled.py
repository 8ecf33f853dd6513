"""Which modules in C there are, and when they are used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.base.compiled import TWINS, language
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
