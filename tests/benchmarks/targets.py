"""What the figures should be, and by how much each misses or beats that: the last table that ``make bench`` prints.

Every target is a ratio of two rows of one run, or a figure per million rows, so that it says something on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.benchmarks.report import Section


class Target(NamedTuple):
    """A figure of a section, or of two rows of it, and its bound.

    Attributes:
        section: how the section's title begins, and what else it contains.
        what: for people.
        row: whose figure.
        key: which one.
        bound: that it should reach.
        at_least: or that it should not exceed.
        beside: row to divide it by.
    """

    section: tuple[str, str]
    what: str
    row: str
    key: str
    bound: float
    at_least: bool = False
    beside: str = ""

    def figure(self, sections: Sequence[Section]) -> float | None:
        """The median, divided by that of ``beside``; None when it was not measured."""
        for section in sections:
            if section.title.startswith(self.section[0]) and section.title.endswith(self.section[1]):
                figure = section.median(self.row, self.key)
                other = section.median(self.beside, self.key) if self.beside else 1.0
                return figure / other if figure is not None and other else None
        return None

    def is_met(self, figure: float) -> bool:
        return figure >= self.bound if self.at_least else figure <= self.bound


_BRIDGE: Final = ("Bridge:", "")
_BACKFILL: Final = ("Backfill:", "")
_SINK: Final = ("Sink:", "")
_LATENCY: Final = ("Latency: single-row transactions, 1000/s", "after as long a warm-up")
_BESIDE: Final = ("Latency: single-row transactions, 500/s", "rows")

TARGETS: Final = (
    Target(_BRIDGE, "bridge: client CPU seconds per million changes", "bridge", "cpu_s", 4.0),
    Target(_BRIDGE, "bridge: rate ÷ pg_recvlogical's", "bridge", "rate", 1.7, True, "pg_recvlogical"),
    Target(_BRIDGE, "bridge: wall ÷ decoding alone", "bridge", "wall_s", 2.0, False, "decoding alone (limit)"),
    Target(_BRIDGE, "bridge: rate ÷ Debezium's, tuned, cold", "bridge", "rate", 4.0, True, "Debezium, tuned"),
    Target(_BRIDGE, "bridge: peak RSS MB", "bridge", "rss_mb", 200.0),
    Target(_BACKFILL, "backfill: rate ÷ COPY's", "backfill", "rate", 0.38, True, "COPY TO STDOUT (limit)"),
    Target(_BACKFILL, "backfill: rate ÷ Debezium's", "backfill", "rate", 3.0, True, "Debezium's snapshot, tuned"),
    Target(_BACKFILL, "backfill: peak RSS MB", "backfill", "rss_mb", 200.0),
    Target(_SINK, "sink: rate ÷ direct COPY's", "sink", "rate", 0.65, True, "direct COPY"),
    Target(_SINK, "sink: peak RSS MB", "sink", "rss_mb", 250.0),
    Target(_LATENCY, "commit → topic at 1,000/s: p50 ms", "commit → topic", "p50_ms", 10.0),
    Target(_LATENCY, "commit → topic at 1,000/s: p99 ms", "commit → topic", "p99_ms", 50.0),
    Target(_BESIDE, "commit → topic beside a backfill: p99 ms", "commit → topic", "p99_ms", 150.0),
)


def judged(sections: Sequence[Section]) -> Iterator[str]:
    """A line for each target that was measured."""
    measured = [(each, figure) for each in TARGETS if (figure := each.figure(sections)) is not None]
    width = max((len(each.what) for each, _ in measured), default=0)
    for each, figure in measured:
        bound = f"{'≥' if each.at_least else '≤'} {each.bound:g}"
        by = figure / each.bound if each.at_least else each.bound / figure
        verdict = "met" if each.is_met(figure) else f"missed by a factor of {1 / by:.2f}"
        yield f"  {each.what.ljust(width)}  {figure:9,.2f}  {bound:>7}  {verdict}"
