"""The demo's end: Spark compares source, topics and replica by its own way of reading, and leaves a report."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.markup import escape

from cdc.base import extras
from cdc.lab.demo.place import DemoPlace
from cdc.lab.demo.screen import Screen
from cdc.lab.stack.java import find_java
from cdc.lab.stack.spark import SUBMIT_OPTIONS, SparkClasses

_QUICK: Final = "-XX:TieredStopAtLevel=1"
"""A shop is compared before what Java's second compiler does has paid for itself."""

_STOP_TIMEOUT_S: Final = 20.0
_TOLD: Final = ("IDENTICAL", "DIFFERENT", "NOT VERIFIED")
_LAST_LINES: Final = 15


class SecondOpinion:
    """``cdc reconcile`` on the demo's servers, beside what the demo does itself; ends with the block at the latest.

    Args:
        place: the demo's servers.
        screen: where to show what it says.
        folder: for the report; it outlives the demo.
    """

    def __init__(self, place: DemoPlace, screen: Screen, folder: Path) -> None:
        self._place, self._screen, self._folder = place, screen, folder
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed at the end of the block
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start it, if Spark is installed: most of its time is the start, which takes one core of two."""
        if importlib.util.find_spec("pyspark") is None:
            return
        command = [sys.executable, "-m", "cdc", "reconcile", "-c", str(self._place.config)]
        options = ["--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={_QUICK}"]
        # The first demo leaves an archive of Spark's classes, which the next one starts with.
        java_options = f"{SparkClasses(find_java()).options(train=True)} {os.environ.get(SUBMIT_OPTIONS, '')}"
        self._process = subprocess.Popen(
            [*command, "--report", str(self._folder), *options],
            env={**os.environ, SUBMIT_OPTIONS: java_options.strip()},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def agrees(self) -> bool:
        """Wait for it, and show what it says.

        Returns:
            Whether nothing speaks against the proof: all is identical, or Spark is not installed.
        """
        if self._process is None:
            self._screen.say("no second opinion by Spark, which is not installed: " + escape(extras.install("spark")))
            return True
        self._screen.say(
            "a second opinion: Spark compares the three sides at one snapshot, bridge and sink still running"
        )
        code = self._process.wait()
        self._output.seek(0)
        said = self._output.read().strip().splitlines()
        verdicts = [line for line in said if line.startswith(_TOLD)]
        self._screen.lines(*map(escape, verdicts))
        if code == 0 and verdicts:
            report = escape(str(self._folder / "report.html"))
            self._screen.lines(f"[bold green]✓ Spark agrees[/]; its report: {report}")
            return True
        self._screen.lines("[bold red]✗ Spark does not agree[/]:", *map(escape, said[-_LAST_LINES:]))
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()
