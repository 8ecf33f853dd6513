"""The benchmarks still run: a few thousand changes through every section, and an interrupted run leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
LATENCY = [["commit → topic", "commit → replica"], ["bridge", "sink", "broker"]]
CONTENDERS = [
    ["bridge", "bridge without a compiler", "pg_recvlogical", "decoding alone (limit)"],
    ["sink", "direct COPY", "COPY to staging + upsert"],
    ["COPY TO STDOUT (limit)", "backfill", "backfill without a compiler", "backfill of 40,000 rows"],
    *LATENCY,
    *LATENCY,
    *LATENCY,
    ["bridge", "sink"],
]


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(300)
def test_every_section_has_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    sizes = ["--changes", "4000", "--runs", "1", "--seconds", "1", "--big-rows", "5000", "--without-peers"]
    process = start(["bridge", "sink", "backfill", "latency", "big", *sizes, "--json", str(path)])
    output, _ = process.communicate()
    assert process.returncode == 0, output
    sections = json.loads(path.read_text())["sections"]
    assert [[row["name"] for row in section["rows"]] for section in sections] == CONTENDERS
    for section in sections:
        assert section["title"] in output
        figures = [value for row in section["rows"] for value in row["runs"][0].values()]
        assert figures
        assert min(figures) >= 0, section
    judged = output.partition("Targets\n")[2].splitlines()
    assert len(judged) > 10, "each target that was measured is met or missed"


@pytest.mark.timeout(120)
def test_an_interrupted_run_stops_its_servers() -> None:
    process = start(["bridge", "--changes", "40000"])
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Machine:"):
            break
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert len(family) >= 2
    assert not [member for member in family if member.is_running()]
