"""What Spark needs of this machine: a Java that it starts with, its classes in an archive, the jars beside pyspark."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from cdc.lab.stack.cache import Say, cache_dir, make_once, silent
from cdc.lab.stack.jars import fetch_spark_jars
from cdc.lab.stack.java import ClassArchive, Java, find_java

_VECTOR_MODULE: Final = "jdk.incubator.vector"

SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Where Spark looks for Java options of a driver, besides those in its settings."""

_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""An archive that does not fit is as good as none, and nobody's trouble."""

_SHIM: Final = """#!/bin/sh
# Spark always asks for {module}, which this runtime lacks and would refuse to start over; Spark does without.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class SparkClasses:
    """The archive of Spark's own classes: a driver that finds it starts with two thirds of the CPU.

    It is made by the demo and the tests; other jobs use it where it is. With it come 170 MB in the cache.

    Args:
        java: the runtime.
        say: told what takes longer than a moment.
    """

    def __init__(self, java: Java, say: Say = silent) -> None:
        self._java = java
        self._say = say

    def options(self, *, train: bool = False) -> str:
        """Options for the next JVM of a driver or an executor here.

        Args:
            train: write the archive at the JVM's end, if there is none.
        """
        home = _spark_home()
        # Java archives nothing for a class path with a folder that has something in it.
        if home is None or _has_settings(home):
            return ""
        classes = cache_dir() / f"spark-classes-{_digest(home / 'jars')}"
        if not train and not classes.is_dir():
            return ""
        classes.mkdir(exist_ok=True)
        flags = ClassArchive(self._java, classes, self._say).flags(train=train)
        return " ".join(f'"{each}"' for each in [*flags, *_QUIET]) if flags else ""


class SparkRuntime(NamedTuple):
    """``java_home`` as Spark's launcher wants it, the jars for ``spark.jars``, and what makes it start sooner."""

    java_home: Path
    jars: tuple[Path, ...]
    classes: SparkClasses


def spark_runtime(say: Say = silent) -> SparkRuntime:
    """Java and jars for Spark's jobs, downloaded at the first call.

    Raises:
        StackError: no Java, or an artefact that cannot be had.
    """
    jars = fetch_spark_jars(say=say)
    found = find_java()
    java, classes = found.executable, SparkClasses(found, say)
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60).stdout
    if _VECTOR_MODULE in modules:
        return SparkRuntime(java.resolve().parents[1], jars, classes)

    def make(directory: Path) -> None:
        shim = directory / "bin" / "java"
        shim.parent.mkdir()
        shim.write_text(_SHIM.format(module=_VECTOR_MODULE, java=java), encoding="utf-8")
        shim.chmod(0o755)

    digest = hashlib.sha256(str(java).encode()).hexdigest()[:12]
    return SparkRuntime(make_once(cache_dir() / f"java-for-spark-{digest}", make), jars, classes)


def _spark_home() -> Path | None:
    """Where pyspark takes Spark from."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    specification = importlib.util.find_spec("pyspark")
    return None if specification is None or specification.origin is None else Path(specification.origin).parent


def _has_settings(home: Path) -> bool:
    settings = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    return settings.is_dir() and any(settings.iterdir())


def _digest(jars: Path) -> str:
    """Of these files as they were installed, under these names: Java refuses an archive of others."""
    installed = f"{jars.absolute()}\n{jars.stat().st_mtime_ns if jars.is_dir() else 0}"
    return hashlib.sha256(installed.encode()).hexdigest()[:12]
