"""What the benchmarks write: figures for programs and for people, and charts."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from tests.benchmarks.curves import GROWING, LOAD_COLUMNS
from tests.benchmarks.output import Run
from tests.benchmarks.report import Section

SVG = "{http://www.w3.org/2000/svg}"


def written(directory: Path) -> Path:
    """The files of a run that measured one curve, twice."""
    section = Section(GROWING[3].title, LOAD_COLUMNS, notes=["a note"])
    for load, p50_ms in ((100, 4.0), (1000, 8.0)):
        for more in (0.0, 1.0):
            figures = {"reached_per_s": load, "p50_ms": p50_ms + more, "p99_ms": 10 * p50_ms, "max_ms": 100.0}
            section.add(f"{load} per second asked", figures)
    Run("a machine", "curves --runs 2", 3.0, 60.0, [section]).write(directory / "new")
    return directory / "new"


def test_figures_are_written_for_programs_and_for_people(tmp_path: Path) -> None:
    directory = written(tmp_path)
    content = json.loads((directory / "figures.json").read_text())
    assert content["sections"][0]["rows"][0]["runs"][1]["p50_ms"] == 5.0
    assert {each["verdict"] for each in content["targets"]} == {"not measured"}
    page = (directory / "figures.md").read_text()
    assert "| 100 per second asked | 100 (100–100) | 4.5 (4.0–5.0) | 40.0 (40.0–40.0) |" in page
    assert "- a note" in page
    assert "| bridge: peak RSS MB | – | ≤ 200 | not measured |" in page


def test_a_curve_that_was_measured_is_a_chart_of_its_medians(tmp_path: Path) -> None:
    directory = written(tmp_path)
    assert [each.name for each in directory.glob("*.svg")] == ["growth-load.svg"]
    drawn = (directory / "growth-load.svg").read_text()
    chart = ElementTree.fromstring(drawn)
    lines = [
        [float(place.split(",")[1]) for place in line.attrib["points"].split()] for line in chart.iter(f"{SVG}polyline")
    ]
    assert len(lines) == 2, "p50 and p99"
    assert all(left > right for left, right in lines), "what is greater stands higher"
    words = {each.text for each in chart.iter(f"{SVG}text")}
    assert {"p50", "p99", "100", "1k", "transactions/s", GROWING[3].title} <= words
    assert "prefers-color-scheme: dark" in drawn
    assert drawn.count("http") == 1, "its namespace, and nothing that a browser would fetch"
