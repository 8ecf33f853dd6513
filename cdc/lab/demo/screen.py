"""Shows the demo: a live line on a terminal, plain lines elsewhere, and the summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from cdc.bridge.asking.follow import display
from cdc.bridge.asking.outcome import Following

_PLAIN_INTERVAL_S: Final = 5.0
_TABLE: Final[dict[str, Any]] = {
    "title_justify": "left",
    "title_style": "bold",
    "header_style": "dim",
    "padding": (0, 2, 0, 0),
    "box": None,
}


class Screen:
    """Shows the progress of a run: live on a terminal, otherwise as a line every five seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._next_plain = 0.0
        self._total: int | None = None
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._live.add_task("starting", total=None, detail="", visible=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Print a line that stays, with the time since the start."""
        self._console.print(f"[dim]{self.elapsed_s:6.1f} s[/]  {text}", highlight=False, soft_wrap=True)

    def begin(self, what: str, total: int) -> None:
        """Begin to show a step of ``total`` units."""
        self._total = total
        self._next_plain = time.monotonic() + _PLAIN_INTERVAL_S
        self._live.reset(self._task, total=total, description=what, detail="", visible=True)
        self._live.start()

    def advance_to(self, done: int, detail: str) -> None:
        """Show how far the step is."""
        self._live.update(self._task, completed=done, detail=detail)
        now = time.monotonic()
        if not self._console.is_terminal and now >= self._next_plain:
            self._next_plain = now + _PLAIN_INTERVAL_S
            self.say(f"{done:,} of {self._total:,} changes{', ' * bool(detail)}{detail}")

    def end(self) -> None:
        """Stop showing the step."""
        if self._live.live.is_started:
            self._live.stop()

    def backfills(self) -> AbstractContextManager[Callable[[Following], None]]:
        """Show the progress of backfills as ``cdc backfill`` does; not while a step is being shown."""
        return display(self._console, lambda line: self.say(escape(line)))

    def table(self, title: str, headings: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
        """Print a table whose first column is text and whose other columns are numbers; it fits 80 columns."""
        table = Table(title=title, **_TABLE)
        for number, heading in enumerate(headings):
            table.add_column(heading, justify="right" if number else "left")
        self._print_table(table, rows)

    def facts(self, title: str, rows: Iterable[tuple[str, str]]) -> None:
        """Print names and values, one pair per line."""
        self._print_table(Table(title=title, show_header=False, **_TABLE), rows)

    def _print_table(self, table: Table, rows: Iterable[tuple[str, ...]]) -> None:
        for row in rows:
            table.add_row(*row)
        self._console.print()
        self._console.print(table)

    def lines(self, *texts: str) -> None:
        """Print lines, which may contain rich markup."""
        for text in texts:
            self._console.print(text, highlight=False, soft_wrap=True)
