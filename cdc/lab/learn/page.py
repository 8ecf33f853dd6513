"""The output of a lesson on a terminal of 80 columns: paragraphs, tables, and what to remember."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

WIDTH: Final = 80
_NUMBER: Final = re.compile(r"[-+]?\d[\d,.]*( ?[%×a-zA-Zµ/]+)?$|–$|$")


class LessonPage:
    """Prints a lesson to a console.

    Args:
        console: where to print; its width is limited to 80 columns.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        console.width = min(console.width, WIDTH)

    def title(self, name: str, question: str) -> None:
        """Print the heading of a lesson."""
        self._console.print()
        self._console.rule(f"[bold]{name}[/]: {question}", align="left")

    def say(self, text: str) -> None:
        """Print a paragraph; line breaks in ``text`` count as spaces."""
        self._console.print()
        self._console.print(" ".join(text.split()), highlight=False, markup=False)

    def table(self, title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table; a column that holds only numbers is aligned to the right."""
        cells = [[_cell(each) for each in row] for row in rows]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for number, heading in enumerate(headings):
            is_number = all(_NUMBER.match(row[number]) for row in cells)
            table.add_column(heading, justify="right" if is_number else "left")
        for row in cells:
            table.add_row(*row)
        self._console.print()
        self._console.print(title, style="bold", highlight=False, markup=False)
        self._console.print(Padding(table, (0, 0, 0, 2), expand=False), highlight=False, markup=False)

    def remember(self, text: str, *commands: str) -> None:
        """Print the end of a lesson: a few sentences, and the commands that show the same on the reader's own topic."""
        self._console.print()
        self._console.print("What to remember", style="bold")
        self._console.print(Padding(" ".join(text.split()), (0, 0, 0, 2), expand=False), highlight=False, markup=False)
        self._console.print()
        self._console.print("On a topic of your own", style="bold")
        for command in commands:
            self._console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
