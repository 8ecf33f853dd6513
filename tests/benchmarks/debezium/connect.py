"""A Kafka Connect of its own for one connector and one run: standalone, on a JVM that is started for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Literal

from cdc.lab.stack.artefacts import fetch, read_lock
from cdc.lab.stack.cache import cache_dir, make_once
from cdc.lab.stack.embedded import free_port
from cdc.lab.stack.java import find_java
from tests.benchmarks.processes import Program, program

Manner = Literal["tuned", "defaults"]
"""With the values that did best here, or with those of the documentation."""

_HERE = Path(__file__).parent
# The collector that did best.
_JVM = ("-Xms256M", "-Xmx2G", "-XX:+UseParallelGC")
_MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"


def manners(run: int) -> Sequence[Manner]:
    """How to run a connector the nth time: with the defaults only once, because no target is about them."""
    return ("tuned", "defaults") if run == 1 else ("tuned",)


@contextmanager
def connect(
    name: str, connector: str, files: Sequence[str], values: Mapping[str, object], place: Path
) -> Iterator[Program]:
    """Run a connector for the length of the block.

    Args:
        name: of the program, for its log.
        connector: Maven's name of it; its lock stands beside this module, under the part behind the last dash.
        files: property files beside this module, a later one has the last word.
        values: what stands for their ``$names``; ``bootstrap`` among them.
        place: an empty directory that is not there yet.
    """
    place.mkdir()
    known = {**values, "port": free_port(), "directory": place}
    worker, properties = place / "worker.properties", place / "connector.properties"
    worker.write_text(filled("worker", known))
    properties.write_text("\n".join(filled(each, known) for each in files))
    logging = place / "log4j2.properties"
    logging.write_text("rootLogger.level=warn\n")
    argv: list[str | Path] = [find_java().executable, *_JVM, f"-Dlog4j2.configurationFile={logging}"]
    with program(name, [*argv, "-cp", f"{jars(connector)}/*", _MAIN, worker, properties], place) as started:
        yield started


def jars(connector: str) -> Path:
    """The directory of a connector's jars, fetched once per user."""
    locked = read_lock(_HERE / f"{connector}.lock")
    version = next(each.version for each in locked if each.name == connector)

    def make(directory: Path) -> None:
        libs = directory / "libs"
        libs.mkdir()
        fetch(locked, libs, what=f"{connector} {version}", instead="--without-peers", say=print, download=None)

    return make_once(cache_dir() / f"{connector}-{version}", make) / "libs"


def filled(name: str, values: Mapping[str, object]) -> str:
    """A property file beside this module, with the values in it."""
    return Template((_HERE / f"{name}.properties").read_text()).substitute(values)
