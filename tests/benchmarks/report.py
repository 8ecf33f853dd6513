"""The figures of a section, as a text table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

Figures = Mapping[str, float | None]
"""One run's figures by column key; None where a figure does not apply."""


class Column(NamedTuple):
    """A column: ``key`` in a run's figures, heading with unit, digits after the decimal point."""

    key: str
    heading: str
    digits: int = 1


@dataclass
class Section:
    """What one section measured.

    Attributes:
        title: names the measured work and its size.
        columns: in printing order.
        ratio: (key, reference row): a last column compares each row's median of that key with the reference row's.
        notes: what exactly is measured and what was left out.
        rows: contender → its runs, in the order of the first run.
    """

    title: str
    columns: Sequence[Column]
    ratio: tuple[str, str] | None = None
    notes: list[str] = field(default_factory=list)
    rows: dict[str, list[Figures]] = field(default_factory=dict)

    def add(self, contender: str, figures: Figures) -> None:
        """Add one run."""
        self.rows.setdefault(contender, []).append(figures)

    def median(self, contender: str, key: str) -> float | None:
        """The median of a contender's runs; None where the figure does not apply."""
        values = self._values(contender, key)
        return median(values) if values else None

    def text(self) -> str:
        """Title, aligned table and notes."""
        lines = self._lines()
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        table = ["  ".join(_pad(line, widths)).rstrip() for line in lines]
        return "\n".join([self.title, *("  " + line for line in table), *(f"  - {note}" for note in self.notes), ""])

    def markdown(self) -> str:
        """The same as a Markdown section."""
        headings, *lines = self._lines()
        table = [headings, ["---"] * len(headings), *lines]
        rows = ["| " + " | ".join(line) + " |" for line in table]
        return "\n".join([f"## {self.title}", "", *rows, "", *(f"- {note}" for note in self.notes)])

    def json(self) -> dict[str, Any]:
        """The same for programs: every run, medians and ratios."""
        rows = [
            {
                "name": contender,
                "median": {column.key: self.median(contender, column.key) for column in self.columns},
                "ratio": self._ratio(contender),
                "runs": runs,
            }
            for contender, runs in self.rows.items()
        ]
        return {"title": self.title, "rows": rows, "notes": self.notes}

    def _lines(self) -> list[list[str]]:
        """The table, headings first."""
        headings = ["", *(column.heading for column in self.columns)]
        if self.ratio:
            headings.append(f"{self.ratio[0]} ÷ {self.ratio[1]}'s")
        lines = [headings]
        for contender in self.rows:
            cells = [contender, *(self._cell(contender, column) for column in self.columns)]
            if self.ratio:
                ratio = self._ratio(contender)
                cells.append("–" if ratio is None else f"{ratio:.2f}")
            lines.append(cells)
        return lines

    def _values(self, contender: str, key: str) -> list[float]:
        return [value for run in self.rows.get(contender, ()) if (value := run.get(key)) is not None]

    def _cell(self, contender: str, column: Column) -> str:
        values = self._values(contender, column.key)
        if not values:
            return "–"
        shown = [f"{value:,.{column.digits}f}" for value in (median(values), min(values), max(values))]
        return shown[0] if len(values) == 1 else f"{shown[0]} ({shown[1]}–{shown[2]})"

    def _ratio(self, contender: str) -> float | None:
        if self.ratio is None:
            return None
        key, reference = self.ratio
        own, other = self.median(contender, key), self.median(reference, key)
        return own / other if own and other else None


def _pad(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cells[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]
