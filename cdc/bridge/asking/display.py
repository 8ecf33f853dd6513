"""Shows backfills to people: as a table on a terminal, as plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich import box
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cdc.bridge.asking.outcome import Following
from cdc.bridge.backfill.pace import average_rate, seconds_left, share
from cdc.contract.record import BackfillProgress, BackfillRequest

_COLOURS: Final = {"done": "green", "failed": "bold red", "cancelled": "red", "paused": "yellow", "waiting": "yellow"}
_MAX_ROWS: Final = 20
"""The most tables that are shown one by one while they are followed. Those under way come first."""
_BAR_WIDTH: Final = 24


def as_live(following: Following) -> Group:
    """Returns what is under way, table by table, and the total."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Table", no_wrap=True)
    table.add_column(max_width=_BAR_WIDTH)  # the only column that shrinks in a narrow terminal
    for title in ("Rows", "Rows/s", "Left"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("State")
    shown = sorted(following.progress.values(), key=lambda each: (not each.is_open, each.state == "done"))[:_MAX_ROWS]
    for each in shown:
        rate = following.rate(each.table) if each.is_open else average_rate(each)
        table.add_row(
            each.table,
            ProgressBar(total=1.0, completed=share(each)),
            _rows(each, about="~"),
            _rate(rate),
            _duration(seconds_left(each, rate)),
            _state(each),
        )
    return Group(*([table] if shown else []), Text(total_line(following)))


def total_line(following: Following) -> str:
    """Returns all tables in one line."""
    if not following.is_taken:
        return "waiting for a bridge to take the request"
    known = list(following.progress.values())
    done = sum(not each.is_open for each in known) + len(following.replaced - following.progress.keys())
    parts = [
        f"{done} of {len(following.tables)} tables over",
        f"{sum(each.rows for each in known):,} rows ({following.share:.0%})",
    ]
    if rate := following.total_rate:
        parts.append(f"{rate:,.0f} rows/s")
    if (left := following.seconds_left) is not None and not following.is_over:
        parts.append(f"{_duration(left)} left")
    waits = {f"{each.table} {each.state}: {each.reason}" for each in known if each.is_open and each.reason}
    return ", ".join(parts) + "".join(f"; {wait}" for wait in sorted(waits)[:3])


def ending_line(progress: BackfillProgress) -> str:
    """Returns how a table's backfill ended, or how far it is."""
    swept = f", {progress.swept:,} keys deleted that the table does not have" if progress.sweep else ""
    took = _duration((progress.updated_at - progress.started_at) / 1e6)
    end = f"{progress.table}: {progress.state}, {progress.rows:,} rows published{swept} in {took}"
    return f"{end}\n  {progress.reason}" if progress.reason else end


def as_table(known: Iterable[BackfillProgress], asked: Iterable[BackfillRequest]) -> Table:
    """Returns a table of every backfill there is, for ``--list``."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("Table", "State", "Done", "Rows", "Rows/s", "Left", "Why", "What"):
        table.add_column(title, justify="right" if title in ("Done", "Rows", "Rows/s", "Left") else "left")
    for each in known:
        rate = average_rate(each)
        left = _duration(seconds_left(each, rate))
        table.add_row(
            each.table, _state(each), f"{share(each):.0%}", _rows(each), _rate(rate), left, each.cause, _what(each)
        )
    for request in asked:
        names = ", ".join(request.tables) or "all tables"
        table.add_row(
            names, Text(f"{request.command} asked", style="yellow"), "", "", "", "", "request", "no bridge yet"
        )
    return table


def as_lines(known: Iterable[BackfillProgress], asked: Iterable[BackfillRequest]) -> list[str]:
    """Returns what ``as_table`` shows, as a line for each backfill."""
    lines = []
    for each in known:
        rate = average_rate(each)
        parts = [f"{each.table}: {each.state}", f"{share(each):.0%}", f"{_rows(each)} rows"]
        parts += [f"{_rate(rate)} rows/s"] if rate else []
        left = seconds_left(each, rate)
        parts += [f"{_duration(left)} left"] if left is not None else []
        parts += [each.cause, *filter(None, [_what(each)])]
        lines.append(", ".join(parts) + (f": {each.reason}" if each.reason else ""))
    for request in asked:
        lines.append(
            f"{', '.join(request.tables) or 'all tables'}: {request.command} asked, no bridge has taken it yet"
        )
    return lines


def _what(progress: BackfillProgress) -> str:
    parts = [
        "" if progress.whole else "topic incomplete",
        f"where {progress.where}" if progress.where else "",
        "sweep" if progress.sweep else "",
        f"at most {progress.rate:,} rows/s" if progress.rate else "",
    ]
    return ", ".join(filter(None, parts))


def _state(progress: BackfillProgress) -> Text:
    text = Text(progress.state, style=_COLOURS.get(progress.state, "cyan"))
    return text.append(f": {progress.reason}", style="not bold") if progress.reason else text


def _rows(progress: BackfillProgress, about: str = "about ") -> str:
    return f"{progress.rows:,} of {about}{progress.estimated_rows:,}" if progress.is_open else f"{progress.rows:,}"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, hours = divmod(int(seconds), 60)[0], int(seconds) // 3600
    return f"{hours} h {minutes % 60:02} min" if hours else f"{minutes} min {int(seconds) % 60:02} s"
