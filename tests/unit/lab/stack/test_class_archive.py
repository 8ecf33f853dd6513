"""Class archives: written by any number of runs at once, taken over when they are whole, and left alone otherwise."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cdc.lab.stack.java import ClassArchive, Java
from cdc.lab.stack.spark import SparkClasses

WHOLE, UNFINISHED = b"\xa8\xab\x0b\xf0 classes", bytes(8)
USES, WRITES = "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """A runtime with a base archive of its own."""
    base = tmp_path / "jdk" / "lib" / "server" / "classes.jsa"
    base.parent.mkdir(parents=True)
    base.touch()
    return Java(tmp_path / "jdk" / "bin" / "java", 17, "PATH", "17.0.1")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "cache" / "program"
    folder.mkdir(parents=True)
    return folder


def test_each_run_writes_a_file_of_its_own_until_one_is_whole(java: Java, home: Path) -> None:
    runs = [ClassArchive(java, home) for _ in range(3)]
    assert ClassArchive(java, home).flags(train=False) == []
    targets = {flag.removeprefix(WRITES) for run in runs for flag in run.flags(train=True)}
    assert len(targets) == len(runs)
    first, second, _ = sorted(targets)
    Path(first).write_bytes(UNFINISHED)
    assert WRITES in runs[0].flags(train=True)[0]
    Path(second).write_bytes(WHOLE)
    (flag,) = ClassArchive(java, home).flags(train=True)
    assert flag.startswith(USES)
    assert Path(flag.removeprefix(USES)).read_bytes() == WHOLE
    assert Path(first).exists(), "its writer may still be at it"
    os.utime(first, (time.time() - 100_000,) * 2)
    assert runs[0].flags(train=False) == [flag]
    assert [each.name for each in home.iterdir()] == [Path(flag).name]


def test_another_java_has_an_archive_of_its_own(java: Java, home: Path) -> None:
    (target,) = ClassArchive(java, home).flags(train=True)
    Path(target.removeprefix(WRITES)).write_bytes(WHOLE)
    assert ClassArchive(java, home).flags(train=False)
    assert ClassArchive(java._replace(identity="17.0.2"), home).flags(train=False) == []


def test_one_java_under_two_names_has_one_archive(java: Java, home: Path, tmp_path: Path) -> None:
    java.executable.parent.mkdir()
    java.executable.touch()
    link = tmp_path / "java"
    link.symlink_to(java.executable)
    (target,) = ClassArchive(java._replace(executable=link, origin="PATH"), home).flags(train=True)
    Path(target.removeprefix(WRITES)).write_bytes(WHOLE)
    (flag,) = ClassArchive(java._replace(origin="JAVA_HOME"), home).flags(train=False)
    assert flag.startswith(USES)


def test_spark_jobs_use_the_archive_that_a_training_job_left(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark home"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    (tmp_path / "spark home" / "jars").mkdir(parents=True)
    classes = SparkClasses(java)
    assert classes.options() == ""
    assert list((tmp_path / "cache").iterdir()) == []
    training = classes.options(train=True)
    target = training.partition(WRITES)[2].partition('"')[0]
    Path(target).write_bytes(WHOLE)
    assert USES in classes.options()
    assert classes.options(train=True) == classes.options()
    (tmp_path / "spark home" / "conf").mkdir()
    assert classes.options()
    (tmp_path / "spark home" / "conf" / "spark-defaults.conf").touch()
    assert classes.options(train=True) == "", "Java refuses to start when it is to archive with such a class path"
