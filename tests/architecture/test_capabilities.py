"""docs/capabilities.md names tests: each of them exists, and no row goes without one."""

from __future__ import annotations

import re
from typing import Final

from tests.architecture.tree import ROOT

_TEST: Final = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
_ROW: Final = re.compile(r"^\| ([A-E]\d.*?) \|(.*)$", re.MULTILINE)
ROWS: Final = _ROW.findall((ROOT / "docs" / "capabilities.md").read_text())

_COUNTS: Final = {"A": 7, "B": 16, "C": 18, "D": 22, "E": 5}
_NOT_OURS: Final = {"A6", "A7"}
"""Claims of scale, and a comparison with other ways to keep state: nothing that a test could show."""


def test_no_capability_is_forgotten() -> None:
    known = {f"{letter}{number}" for letter, count in _COUNTS.items() for number in range(1, count + 1)}
    found = {name.split()[0] for row, _ in ROWS for name in row.split(", ")}
    assert (known - found, found - known) == (_NOT_OURS, set())


def test_every_row_names_a_test_that_exists() -> None:
    assert len(ROWS) > 30
    wrong = [row for row, rest in ROWS if not _TEST.search(rest)]
    for row, rest in ROWS:
        for file, function in _TEST.findall(rest):
            path = ROOT / "tests" / file
            if not path.exists() or f"def {function}(" not in path.read_text():
                wrong.append(f"{row}: {file}::{function}")
    assert not wrong, wrong
