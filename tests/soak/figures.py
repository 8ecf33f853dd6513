"""What a soak measured, and whether it is still as it was in the beginning."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from tests.benchmarks.report import Column, Section

MB: Final = 1e6
_PARTS: Final = 3
_FEWEST: Final = 2 * _PARTS
"""Samples; of fewer, a median of a third is one of them."""


class Limit(NamedTuple):
    """How much a median may grow: by less than this share of it, or by less than this amount."""

    amount: float
    share: float = 0


MEMORY: Final = Limit(30 * MB, 0.2)
DESCRIPTORS: Final = Limit(10)


class Growth(NamedTuple):
    """The medians of the second and of the last third; what lies before them is the start."""

    before: float
    after: float

    def exceeds(self, limit: Limit) -> bool:
        """Whether it grew by more than the limit allows."""
        grown = self.after - self.before
        return grown >= limit.amount and grown >= limit.share * self.before


def growth(samples: Sequence[float]) -> Growth | None:
    """How samples grew in the last third; None if there are too few of them."""
    if len(samples) < _FEWEST:
        return None
    third = len(samples) // _PARTS
    return Growth(median(samples[-2 * third : -third]), median(samples[-third:]))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them does not exceed."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


class Sample(NamedTuple):
    """What a process took when everything had caught up.

    Attributes:
        age_s: since its last start.
    """

    rss_bytes: int
    descriptors: int
    age_s: float


@dataclass
class Load:
    """What one profile committed, and for how long it had its turn."""

    transactions: int = 0
    rows: int = 0
    rolled_back: int = 0
    refused: int = 0
    seconds: float = 0


@dataclass
class Check:
    """One comparison of all sides."""

    at_s: float
    caught_up_s: float
    took_s: float
    tables: int
    rows: int
    differences: int


@dataclass
class Figures:
    """Everything that is measured, and what failed.

    Attributes:
        recoveries: seconds from a fault until the replica held all that was committed when it was over, by kind.
        looks: how often the watcher compared two tables of the replica, in ``cuts`` different cuts.
        waited_s: for so long the profiles wrote nothing, because the replica was too far away.
    """

    loads: dict[str, Load] = field(default_factory=lambda: defaultdict(Load))
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    checks: list[Check] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    looks: int = 0
    cuts: int = 0
    waited_s: float = 0

    def judge(self) -> None:
        """Count what grew too much among the failures."""
        for name, samples in self.samples.items():
            for what, limit, values in (
                ("memory", MEMORY, [float(each.rss_bytes) for each in samples]),
                ("open descriptors", DESCRIPTORS, [float(each.descriptors) for each in samples]),
            ):
                grown = growth(values)
                if grown is not None and grown.exceeds(limit):
                    self.failures.append(f"{what} of the {name} grew from {grown.before:,.0f} to {grown.after:,.0f}")

    def text(self) -> str:
        """All tables, and the verdict below them."""
        sections = (self._load(), self._faults(), self._checks(), self._processes())
        verdict = "\n".join(f"FAILED: {each}" for each in self.failures) or self._success()
        return "\n".join([*(each.text() for each in sections if each.rows), verdict])

    def _success(self) -> str:
        compared = "all sides were the same" if self.checks else "nothing was compared"
        watched = f"two tables of the replica agreed in each of {self.looks:,} looks, at {self.cuts:,} cuts"
        return "; ".join([compared, *self.remarks, watched])

    def _load(self) -> Section:
        columns = [
            Column(each, each.replace("_", " "), 0) for each in ("transactions", "rows", "rolled_back", "refused")
        ]
        rates = [Column("tps", "transactions/s"), Column("rps", "rows/s", 0)]
        section = Section("Load, by profile", [*columns, Column("seconds", "s", 0), *rates])
        for name, load in sorted(self.loads.items()):
            seconds = load.seconds or 1
            rows = {"rows": load.rows, "rps": load.rows / seconds} if load.rows else {"rows": None}
            section.add(name, {**vars(load), "tps": load.transactions / seconds, **rows})
        section.notes.append(f"for {self.waited_s:,.0f} s of that time, the load waited for the replica")
        return section

    def _faults(self) -> Section:
        columns = [Column("count", "hits", 0), Column("seen", "recoveries", 0)]
        columns += [Column(each, f"{each}, s") for each in ("p50", "p99", "max")]
        note = "from the fault, while the load goes on, until the replica held all that was committed when it was over"
        section = Section("Faults, and how long until caught up", columns, notes=[note])
        every = [each for seconds in self.recoveries.values() for each in seconds]
        for name, count in [*sorted(self.faults.items()), ("all", self.faults.total())]:
            took = every if name == "all" else self.recoveries[name]
            shares = {"p50": percentile(took, 0.5), "p99": percentile(took, 0.99), "max": max(took)} if took else {}
            section.add(name, {"count": count, "seen": len(took), **shares})
        return section

    def _checks(self) -> Section:
        columns = [
            Column("at_s", "after, s", 0),
            Column("caught_up_s", "caught up, s"),
            Column("took_s", "compared, s"),
        ]
        columns += [Column(each, each, 0) for each in ("tables", "rows", "differences")]
        section = Section("Checks: source = topics = replica, by full rows", columns)
        for number, check in enumerate(self.checks, 1):
            section.add(f"{number}", vars(check))
        return section

    def _processes(self) -> Section:
        columns = [Column(each, each.replace("_", " "), 0) for each in ("first", "second_third", "last_third", "most")]
        section = Section("Memory (MB) and open descriptors at the checks, medians of thirds", columns)
        for name, samples in sorted(self.samples.items()):
            for what, values in (
                ("MB", [each.rss_bytes / MB for each in samples]),
                ("descriptors", [float(each.descriptors) for each in samples]),
            ):
                grown = growth(values)
                thirds = {"second_third": grown.before, "last_third": grown.after} if grown else {}
                section.add(f"{name}, {what}", {"first": values[0], **thirds, "most": max(values)})
            ages = [each.age_s for each in samples]
            section.notes.append(f"age of the {name} at the checks: {median(ages):,.0f} s, at most {max(ages):,.0f} s")
        if any(len(each) < _FEWEST for each in self.samples.values()):
            section.notes.append(f"fewer than {_FEWEST} checks: too few to see whether anything grows")
        return section
