"""The figures as files: ``figures.json`` with every run, ``figures.md`` with the tables and the targets, charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.curves import GROWING
from tests.benchmarks.report import Section
from tests.benchmarks.targets import Verdict, judged


class Run(NamedTuple):
    """One call of the benchmarks.

    Attributes:
        machine: one line about it.
        command: what was typed, behind the module's name.
        busy_percent_before: of all cores, by others, before the start.
        took_s: until now.
        sections: measured until now.
    """

    machine: str
    command: str
    busy_percent_before: float
    took_s: float
    sections: Sequence[Section]

    def write(self, directory: Path) -> None:
        """Write the files, over older ones."""
        directory.mkdir(parents=True, exist_ok=True)
        content = json.dumps(self._json(), indent=2, ensure_ascii=False)
        (directory / "figures.json").write_text(content + "\n", encoding="utf-8")
        (directory / "figures.md").write_text(self._markdown(), encoding="utf-8")
        for curve in GROWING:
            chart = curve.chart(self.sections)
            if chart is not None:
                (directory / f"growth-{curve.name}.svg").write_text(chart.svg(), encoding="utf-8")

    def _json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "command": self.command,
            "busy_percent_before": self.busy_percent_before,
            "took_s": self.took_s,
            "sections": [section.json() for section in self.sections],
            "targets": [
                {"what": each.target.what, "figure": each.figure, "bound": each.bound, "verdict": each.words}
                for each in judged(self.sections)
            ],
        }

    def _markdown(self) -> str:
        head = (
            f"`python -m tests.benchmarks {self.command}`",
            f"{self.machine}. Before the start {self.busy_percent_before:.0f} % of all cores were busy. "
            f"Took {self.took_s:.0f} s. Medians, with the range of the runs.",
        )
        return "\n\n".join([*head, *(section.markdown() for section in self.sections), _targets(self.sections)])


def _targets(sections: Sequence[Section]) -> str:
    lines = ["| target | figure | bound | |", "|---|---|---|---|"]
    lines += [f"| {each.target.what} | {_shown(each)} | {each.bound} | {each.words} |" for each in judged(sections)]
    return "\n".join(["## Targets", "", *lines, ""])


def _shown(verdict: Verdict) -> str:
    return "–" if verdict.figure is None else f"{verdict.figure:,.2f}"
