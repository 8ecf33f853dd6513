"""The demo's end: Spark compares source, topics and replica by its own way of reading, and leaves a report."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Final

from rich.markup import escape

from cdc import extras
from cdc.demo.place import Place
from cdc.demo.screen import Screen

_QUICK: Final = "-XX:TieredStopAtLevel=1"
"""A shop is compared before what Java's second compiler does has paid for itself."""


def second_opinion(place: Place, screen: Screen, folder: Path) -> bool:
    """Run ``cdc reconcile`` on the demo's servers, and show what it says.

    Args:
        place: the demo's servers.
        screen: where to show it.
        folder: for the report; it outlives the demo.

    Returns:
        Whether nothing speaks against the proof: all is identical, or Spark is not installed.
    """
    if importlib.util.find_spec("pyspark") is None:
        screen.say("no second opinion by Spark, which is not installed: " + escape(extras.install("spark")))
        return True
    screen.say("a second opinion: Spark compares the three sides at one snapshot, bridge and sink still running")
    command = [sys.executable, "-m", "cdc", "reconcile", "-c", str(place.config), "--report", str(folder)]
    options = ["--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={_QUICK}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    verdicts = [
        line for line in done.stdout.splitlines() if line.startswith(("IDENTICAL", "DIFFERENT", "NOT VERIFIED"))
    ]
    for line in verdicts:
        screen.lines(escape(line))
    if done.returncode == 0 and verdicts:
        screen.lines(f"[bold green]✓ Spark agrees[/]; its report: {escape(str(folder / 'report.html'))}")
        return True
    said = (done.stdout + done.stderr).strip().splitlines()[-15:]
    screen.lines("[bold red]✗ Spark does not agree[/]:", *map(escape, said))
    return False
