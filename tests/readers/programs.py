"""Makes and runs foreign programs: each stands in a folder here, and what it needs is locked beside it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from cdc.lab.stack.cache import cache_dir, make_once
from cdc.lab.stack.spark import spark_runtime
from tests.readers.fed import EMBEDS_DOCUMENTS, Fed
from tests.readers.losses import unquoted
from tests.support.locked_jars import locked_jars

HERE: Final = Path(__file__).parent
_TIMEOUT_S: Final = 560
_QUICK_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""For programs that are over in seconds."""
_JARS: Final = ("consumer", "serdes")
_TO_MAKE_S: Final = 580
"""A first build compiles the libraries, Go's own included."""


def franz_go(fed: Fed, directory: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """The rows as franz-go reads them."""
    return _said([_go_program("franz"), *fed.arguments()], directory, environment)


def kafkajs(fed: Fed, directory: Path) -> list[str]:
    """The rows as kafkajs reads them."""
    folder = _node_program("kafkajs", "read.js")
    return _said([_tool("node"), folder / "read.js", *fed.arguments()], directory)


def java_consumer(fed: Fed, directory: Path, *options: str) -> list[str]:
    """The rows as the plain Java consumer reads them."""
    return run_java("java", ["Values", "ConsumerReader"], _JARS, [*fed.arguments(), *options], directory)


def kafka_streams(fed: Fed, directory: Path) -> list[str]:
    """The rows that a GlobalKTable holds."""
    return run_java("java", ["Values", "StreamsReader"], [*_JARS, "streams"], fed.arguments(), directory)


def spark(fed: Fed, directory: Path) -> list[str]:
    """The rows as Spark reads them: a program that knows nothing of ours, with Spark's own connectors."""
    runtime, target = spark_runtime(), directory / "rows"
    given = [
        fed.bootstrap,
        fed.topic,
        fed.value_format,
        fed.registry_url,
        ",".join(map(str, runtime.jars)),
        str(target),
    ]
    environment = {"JAVA_HOME": str(runtime.java_home), "PYSPARK_PYTHON": sys.executable}
    _said([sys.executable, HERE / "spark" / "read.py", *given], directory, environment)
    lines = [line for part in target.glob("part-*") for line in part.read_text(encoding="utf-8").split("\n") if line]
    if fed.value_format not in EMBEDS_DOCUMENTS:
        return lines
    rows = (json.loads(line) for line in lines)
    return [json.dumps({**row, "doc": unquoted(row["doc"])} if "doc" in row else row) for row in rows]


def run_java(
    name: str,
    sources: Sequence[str],
    locks: Sequence[str],
    arguments: Sequence[str],
    directory: Path,
    options: Sequence[str] = (),
) -> list[str]:
    """What the class of the last source prints.

    Args:
        name: of the folder.
        sources: of the classes, without the suffix.
        locks: of their jars, without the suffix.
        arguments: of the program.
        directory: where it runs.
        options: of Java.
    """
    javac = _tool("javac")
    files = [HERE / name / f"{each}.java" for each in sources]
    paths = [HERE / name / f"{each}.lock" for each in locks]
    jars = os.pathsep.join(f"{locked_jars(each)}/*" for each in paths)

    def make(folder: Path) -> None:
        _said([javac, "-nowarn", "-cp", jars, "-d", folder, *files], folder)

    classes = make_once(_home(f"{name}-{sources[-1]}", *files, *paths), make)
    java: list[str | Path] = [Path(javac).with_name("java"), *_QUICK_JAVA, *options]
    return _said([*java, "-cp", f"{classes}{os.pathsep}{jars}", sources[-1], *arguments], directory)


def _said(
    argv: Sequence[str | Path],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    timeout_s: int = _TIMEOUT_S,
) -> list[str]:
    """What a program prints; its end has to be a good one."""
    done = subprocess.run(
        argv,
        cwd=directory,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    said = done.stderr if len(done.stderr) < 8000 else f"{done.stderr[:4000]}\n[…]\n{done.stderr[-4000:]}"
    assert done.returncode == 0, f"{argv[0]}: {done.returncode}\n{said}\n{done.stdout[-1000:]}"
    return [line for line in done.stdout.split("\n") if line]


def _tool(name: str) -> str:
    """The path of a tool; the test is not run where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} on this machine")
    return found


def _go_program(name: str) -> Path:
    go = _tool("go")
    asked = re.search(r"^go (\d+)\.(\d+)", (HERE / name / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    has = re.search(r"go(\d+)\.(\d+)", subprocess.run([go, "version"], capture_output=True, text=True).stdout)
    assert asked is not None
    if has is None or tuple(map(int, has.groups())) < tuple(map(int, asked.groups())):
        pytest.skip(f"{asked[0]} or newer is needed, and this machine has {has[0] if has else 'another one'}")

    def make(folder: Path) -> None:
        environment = {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
        _said([go, "build", "-o", folder / name, "."], HERE / name, environment, _TO_MAKE_S)

    return make_once(_home(name, *sorted((HERE / name).iterdir())), make) / name


def _node_program(name: str, source: str) -> Path:
    """A folder with the program and its packages, as the lock names them."""
    npm = _tool("npm")
    locked = [HERE / name / each for each in ("package.json", "package-lock.json", source)]

    def make(folder: Path) -> None:
        for each in locked:
            shutil.copy(each, folder)
        _said([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder, timeout_s=_TO_MAKE_S)

    return make_once(_home(name, *locked), make)


def _home(name: str, *files: Path) -> Path:
    """A place in the cache for what is made of these files."""
    digest = hashlib.sha256(b"\0".join(each.read_bytes() for each in files)).hexdigest()[:12]
    return cache_dir() / f"reader-{name}-{digest}"
