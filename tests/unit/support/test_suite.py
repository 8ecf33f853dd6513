"""The second hearing: of few tests, and of none that draws at random; what fails alone fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite import verdict

_PLUGIN = """
from tests.suite import FirstHearing
def pytest_configure(config): config.pluginmanager.register(FirstHearing(config))
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


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        ({"b": False, "a": False}, ["a", "b"]),
        ({"a": False, "b": True}, []),
        (dict.fromkeys("abcd", False), []),
        ({}, []),
    ],
)
def test_who_is_heard_again(failed: dict[str, bool], again: list[str]) -> None:
    assert verdict(failed) == again


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (_ONCE, 0, "Passed alone only, which is a defect of the test or of the product: test_it.py::test_once"),
        (_ONCE.replace("def test_once", "@pytest.mark.soak\ndef test_once"), 1, "1 failed, 1 passed"),
        ("def test_ever(): assert 0", 1, "Once more, alone: test_it.py::test_ever"),
        ("import nothing_of_that_name", 2, "1 error"),
        (_ONCE.replace("assert not first", "if first: raise MemoryError"), 1, "1 failed, 1 passed"),
        ("import time\ndef test_hangs(): time.sleep(60)", 1, "from pytest-timeout"),
    ],
)
def test_the_exit_code(tmp_path: Path, text: str, code: int, said: str) -> None:
    ran = run_suite(tmp_path, text, "--timeout=3")
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert said in ran.stdout
    assert ("Once more" in ran.stdout) == ("test_once" in said or "test_ever" in said)


def test_a_crash_is_final(tmp_path: Path) -> None:
    """xdist tells of a worker that crashed by a report without marks."""
    crash = _ONCE.replace("assert not first", "first and os.abort()").replace("import pathlib", "import os, pathlib")
    ran = run_suite(tmp_path, crash, "-n1")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "crashed while running" in ran.stdout
    assert "Once more" not in ran.stdout


def run_suite(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one module of tests in a folder of its own."""
    for name, content in (("conftest.py", _PLUGIN), ("pytest.ini", _MARKS), ("test_it.py", text)):
        (folder / name).write_text(content)
    return subprocess.run(
        [sys.executable, "-m", "tests.suite", ".", *options],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
    )
