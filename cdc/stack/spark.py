"""What Spark needs of this machine: a Java that it starts with, and the jars beside pyspark."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from cdc.stack.cache import Say, cache_dir, make_once, silent
from cdc.stack.jars import fetch_spark_jars
from cdc.stack.java import find_java

_VECTOR_MODULE: Final = "jdk.incubator.vector"

_SHIM: Final = """#!/bin/sh
# Spark always asks for {module}, which this runtime lacks and would refuse to start over; Spark does without.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class SparkRuntime(NamedTuple):
    """``java_home`` as Spark's launcher wants it, and the jars for ``spark.jars``."""

    java_home: Path
    jars: tuple[Path, ...]


def spark_runtime(say: Say = silent) -> SparkRuntime:
    """Java and jars for Spark's jobs, downloaded at the first call.

    Raises:
        StackError: no Java, or an artefact that cannot be had.
    """
    jars = fetch_spark_jars(say=say)
    java = find_java().executable
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60).stdout
    if _VECTOR_MODULE in modules:
        return SparkRuntime(java.resolve().parents[1], jars)

    def make(directory: Path) -> None:
        shim = directory / "bin" / "java"
        shim.parent.mkdir()
        shim.write_text(_SHIM.format(module=_VECTOR_MODULE, java=java), encoding="utf-8")
        shim.chmod(0o755)

    digest = hashlib.sha256(str(java).encode()).hexdigest()[:12]
    return SparkRuntime(make_once(cache_dir() / f"java-for-spark-{digest}", make), jars)
