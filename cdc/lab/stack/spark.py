"""Provides what Spark needs on this machine: a Java that starts it, an archive of its classes, and jars."""

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
"""The variable where Spark looks for Java options of a driver, in addition to its settings."""

_QUIET: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Turns off warnings about an archive that does not fit: Java then works as it would without one."""

_SHIM: Final = """#!/bin/sh
# Spark always asks for {module}. This runtime lacks it, and would refuse to start; Spark works without it.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class SparkClasses:
    """The archive of Spark's own classes. With it, the start of a driver takes two thirds of the CPU time.

    The demo and the tests write the archive; other jobs use it if it exists. It takes 170 MB in the cache.

    Args:
        java: the runtime.
        say: called before anything that takes long.
    """

    def __init__(self, java: Java, say: Say = silent) -> None:
        self._java = java
        self._say = say

    def options(self, *, train: bool = False) -> str:
        """Returns Java options for the next driver or executor on this machine.

        Args:
            train: let the JVM write the archive when it ends, if there is none.
        """
        home = _spark_home()
        # Java makes no archive if the class path has a folder that is not empty, such as that of Spark's settings.
        if home is None or _has_settings(home):
            return ""
        classes = cache_dir() / f"spark-classes-{_digest(home / 'jars')}"
        if not train and not classes.is_dir():
            return ""
        classes.mkdir(exist_ok=True)
        flags = ClassArchive(self._java, classes, self._say).flags(train=train)
        return " ".join(f'"{each}"' for each in [*flags, *_QUIET]) if flags else ""


class SparkRuntime(NamedTuple):
    """What Spark needs: ``java_home`` for its launcher, the jars for ``spark.jars``, and the archive of its classes."""

    java_home: Path
    jars: tuple[Path, ...]
    classes: SparkClasses


def spark_runtime(say: Say = silent) -> SparkRuntime:
    """Returns Java and jars for Spark jobs; the first call downloads the jars.

    Raises:
        StackError: there is no Java, or an artefact cannot be downloaded.
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
    """Returns the folder from which pyspark starts Spark; None if there is none."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    specification = importlib.util.find_spec("pyspark")
    return None if specification is None or specification.origin is None else Path(specification.origin).parent


def _has_settings(home: Path) -> bool:
    settings = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    return settings.is_dir() and any(settings.iterdir())


def _digest(jars: Path) -> str:
    """Returns a digest of the jars' path and installation time: Java refuses an archive of any other files."""
    installed = f"{jars.absolute()}\n{jars.stat().st_mtime_ns if jars.is_dir() else 0}"
    return hashlib.sha256(installed.encode()).hexdigest()[:12]
