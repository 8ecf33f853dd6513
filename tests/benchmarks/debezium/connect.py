"""A Kafka Connect of its own for one connector and one run: standalone, on a JVM that is started for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Literal

from cdc.lab.stack.embedded import free_port
from cdc.lab.stack.java import find_java
from tests.benchmarks.processes import Program, program
from tests.support.locked_jars import locked_jars

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
    name: str, connector: str, files: Sequence[str], values: Mapping[str, object], place: Path, also: Sequence[str] = ()
) -> Iterator[Program]:
    """Run a connector for the length of the block.

    Args:
        name: of the program, for its log.
        connector: Maven's name of it; its lock stands beside this module, under the part behind the last dash.
        files: property files beside this module, a later one has the last word.
        values: what stands for their ``$names``; ``bootstrap`` among them.
        place: an empty directory that is not there yet.
        also: more entries of the class path.
    """
    properties = "\n".join(filled(each, {**values, "directory": place}) for each in files)
    with connect_with(name, connector, properties, str(values["bootstrap"]), place, also) as started:
        yield started


@contextmanager
def connect_with(
    name: str, connector: str, properties: str, bootstrap: str, place: Path, also: Sequence[str] = ()
) -> Iterator[Program]:
    """As ``connect``, with the connector's properties as a text, and more entries of the class path."""
    place.mkdir()
    worker, file = place / "worker.properties", place / "connector.properties"
    worker.write_text(filled("worker", {"bootstrap": bootstrap, "port": free_port(), "directory": place}))
    file.write_text(properties, encoding="utf-8")
    logging = place / "log4j2.properties"
    logging.write_text("rootLogger.level=warn\n")
    argv: list[str | Path] = [find_java().executable, *_JVM, f"-Dlog4j2.configurationFile={logging}"]
    own = locked_jars(_HERE / f"{connector}.lock", say=print, instead="--without-peers")
    jars = os.pathsep.join((f"{own}/*", *also))
    with program(name, [*argv, "-cp", jars, _MAIN, worker, file], place) as started:
        yield started


def filled(name: str, values: Mapping[str, object]) -> str:
    """A property file beside this module, with the values in it."""
    return Template((_HERE / f"{name}.properties").read_text()).substitute(values)
