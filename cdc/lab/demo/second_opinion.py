"""The end of the demo: Spark compares source, topics and replica with code of its own, and writes a report."""

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
"""Turns Java's second compiler off: the comparison of a shop is over before that compiler pays off."""

_STOP_TIMEOUT_S: Final = 20.0
_TOLD: Final = ("IDENTICAL", "DIFFERENT", "NOT VERIFIED")
_LAST_LINES: Final = 15


class SecondOpinion:
    """Runs ``cdc reconcile`` on the demo's servers while the demo does its own comparison. It ends with the block.

    Args:
        place: the demo's servers.
        screen: shows the result.
        folder: the folder of the report, which stays after the demo.
    """

    def __init__(self, place: DemoPlace, screen: Screen, folder: Path) -> None:
        self._place, self._screen, self._folder = place, screen, folder
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115  __exit__ closes it
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Start Spark, if it is installed. This comes early, because the start takes most of its time, on one core."""
        if importlib.util.find_spec("pyspark") is None:
            return
        command = [sys.executable, "-m", "cdc", "reconcile", "-c", str(self._place.config)]
        options = ["--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={_QUICK}"]
        # The first demo writes an archive of Spark's classes, from which later demos start faster.
        java_options = f"{SparkClasses(find_java()).options(train=True)} {os.environ.get(SUBMIT_OPTIONS, '')}"
        self._process = subprocess.Popen(
            [*command, "--report", str(self._folder), *options],
            env={**os.environ, SUBMIT_OPTIONS: java_options.strip()},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def agrees(self) -> bool:
        """Wait for Spark, and show its result.

        Returns:
            False if Spark found a difference or failed; True if all is identical, or Spark is not installed.
        """
        if self._process is None:
            self._screen.say("no second opinion by Spark, which is not installed: " + escape(extras.install("spark")))
            return True
        self._screen.say(
            "a second opinion: Spark compares the three sides at one snapshot, while bridge and sink keep running"
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
