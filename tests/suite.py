"""Runs pytest, and what failed once more, alone: ``python -m tests.suite tests -n 4``, as ``make test`` does.

Beside four other processes on two cores a test may miss a moment, or a server its time. So up to three tests that
failed have a second hearing, with servers of their own and nothing beside them. What passes then is named in the last
line, for it is a defect all the same. What draws its kills, loads or rows at random has none: it would meet others.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

MOST: Final = 3
"""Tests with a second hearing; if more of them fail, it was no accident."""
_FILE: Final = "tests/failed"
_AT_RANDOM: Final = ("soak", "property")
"""A mark, and a ring."""


class FirstHearing:
    """Keeps in pytest's cache what failed; in the process that hands out the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_final: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for setup, call and teardown of each test."""
        if report.failed:
            self._is_final[report.nodeid] = any(name in report.keywords for name in _AT_RANDOM)

    def pytest_sessionfinish(self) -> None:
        """Written by every run, so that no run is judged by an older one."""
        if self._config.cache is not None:
            self._config.cache.set(_FILE, self._is_final)


def verdict(failed: dict[str, bool]) -> list[str]:
    """The tests to hear again; none when one of them is final, or when there are too many.

    Args:
        failed: whether it is final, by test.
    """
    return [] if any(failed.values()) or len(failed) > MOST else sorted(failed)


def main(arguments: Sequence[str]) -> int:
    """Exit code of pytest, and 0 when all that failed passed alone."""
    python = [sys.executable, "-m", "pytest"]
    code = subprocess.call([*python, *arguments])
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    again = verdict(json.loads(Path(".pytest_cache/v", _FILE).read_text(encoding="utf-8")))
    if not again:
        return code
    sys.stdout.write(f"\nOnce more, alone: {', '.join(again)}\n")
    sys.stdout.flush()
    code = subprocess.call([*python, *again])
    if code == pytest.ExitCode.OK:
        sys.stdout.write(f"Passed alone only, which is a defect of the test or of the product: {', '.join(again)}\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
