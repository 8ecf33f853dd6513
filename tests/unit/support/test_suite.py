"""The gate: what fails fails the run, but for a flake that is entered, has not expired and passes alone."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.suite import FLAKES, heard_again, known_flakes

_PLUGIN = """
from tests.suite import FailureRecord
def pytest_configure(config): config.pluginmanager.register(FailureRecord(config))
"""
_MARKS = "[pytest]\nmarkers = soak: at random\n"
_ONCE = """
import pathlib, pytest
def test_once():
    first = not pathlib.Path("seen").exists()
    pathlib.Path("seen").touch()
    assert not first
def test_other(): pass
"""


_ENTERED = """
[[flake]]
test = "test_it.py::test_once"
reason = "it meets a server that is not up yet"
owner = "tests/unit/support/test_suite.py"
until = {until}
"""
_TOMORROW = datetime.now(UTC).date() + timedelta(days=1)
_YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
MOST_DAYS = 14
"""For so long an entry may stand: then its defect is mended, or the test fails the run."""


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        ({"b": False, "a": False}, ["a", "b"]),
        ({"a": False, "b": True}, []),
        ({"a": False, "other": False}, []),
        ({}, []),
    ],
)
def test_only_known_flakes_are_heard_again(failed: dict[str, bool], again: list[str]) -> None:
    assert heard_again(failed, {"a", "b"}) == again


def test_every_entry_says_whose_defect_it_is_and_expires() -> None:
    for each in known_flakes(ROOT / FLAKES):
        assert (ROOT / each.test.partition("::")[0]).exists(), each
        assert (ROOT / each.owner).exists(), each
        assert len(each.reason.split()) > 3, each
        left = each.until - datetime.now(UTC).date()
        assert timedelta(0) <= left <= timedelta(days=MOST_DAYS), f"mend it, or say why it goes on: {each}"


@pytest.mark.parametrize(
    ("until", "text", "code", "said"),
    [
        (None, _ONCE, 1, "Known flakes: none"),
        (_TOMORROW, _ONCE, 0, "Known flakes, once more and alone: test_it.py::test_once"),
        (_YESTERDAY, _ONCE, 1, "(expired; tests/unit/support/test_suite.py): it meets a server that is not up yet"),
        (_TOMORROW, _ONCE.replace("def test_once", "@pytest.mark.soak\ndef test_once"), 1, "1 failed, 1 passed"),
        (_TOMORROW, _ONCE.replace("assert not first", "assert 0"), 1, "Known flakes, once more and alone"),
        (_TOMORROW, _ONCE.replace("def test_other(): pass", "def test_other(): assert 0"), 1, "2 failed"),
        (_TOMORROW, "import nothing_of_that_name", 2, "1 error"),
        (_TOMORROW, _ONCE.replace("assert not first", "if first: raise MemoryError"), 1, "1 failed, 1 passed"),
        (_TOMORROW, "import time\ndef test_once(): time.sleep(60)", 1, "from pytest-timeout"),
    ],
)
def test_the_exit_code(tmp_path: Path, until: date | None, text: str, code: int, said: str) -> None:
    enter(tmp_path, until)
    ran = run_suite(tmp_path, text, "--timeout=3")
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert said in ran.stdout
    assert ("once more" in ran.stdout) == ("once more" in said)


def enter(folder: Path, until: date | None) -> None:
    """Enter the test as a flake."""
    if until is not None:
        (folder / "tests").mkdir()
        (folder / FLAKES).write_text(_ENTERED.format(until=until))


def test_a_crash_is_final(tmp_path: Path) -> None:
    """xdist tells of a worker that crashed by a report without marks."""
    crash = _ONCE.replace("assert not first", "first and os.abort()").replace("import pathlib", "import os, pathlib")
    enter(tmp_path, _TOMORROW)
    ran = run_suite(tmp_path, crash, "-n1")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "crashed while running" in ran.stdout
    assert "once more" not in ran.stdout


def run_suite(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one module of tests in a folder of its own."""
    for name, content in (("conftest.py", _PLUGIN), ("pytest.ini", _MARKS), ("test_it.py", text)):
        (folder / name).write_text(content)
    return subprocess.run(
        [sys.executable, "-m", "tests.suite", ".", *options],
        cwd=folder,
        # Loading every plugin that is installed takes longer than the tests
        env={
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_timeout,xdist",
        },
        capture_output=True,
        text=True,
    )
