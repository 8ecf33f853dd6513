"""A table's comparisons, one per side: source with topic, and topic with replica if that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.base.words import counted
from cdc.spark.report.model import DifferenceClass, Side, TableReport, Verdict, by_class, differences
from cdc.spark.report.words import VERDICT, class_word


@dataclass(frozen=True, slots=True)
class SideComparison:
    """The result for one side of one table.

    Attributes:
        other: the name of the topic, or of the replica's table.
        name: what the other side is: ``topic``, ``replica`` or ``lake``.
        classes: the number of keys in every class that this side has, zeros included.
        sentence: the result in words, without the verdict and the table's name.
    """

    side: Side
    name: str
    other: str
    verdict: Verdict
    identical: int
    classes: dict[DifferenceClass, int]
    sentence: str

    @property
    def found(self) -> str:
        """The classes that are not empty, in words."""
        return ", ".join(f"{number:,} {class_word(kind, self.name)}" for kind, number in self.classes.items() if number)

    @property
    def said(self) -> str:
        """The sentence, and the classes that it leaves out."""
        return f"{self.sentence}: {self.found}" if self.found and self.verdict != "not_verified" else self.sentence

    @property
    def differences(self) -> int:
        """The number of keys that are proven to differ."""
        return differences(self.classes)

    @property
    def keys(self) -> int:
        """The number of keys that either side has."""
        return self.identical + sum(self.classes.values())


def comparisons(table: TableReport) -> tuple[SideComparison, ...]:
    """Returns the topic's comparison, followed by the replica's if there is one."""
    return (_topic(table),) if table.replica is None else (_topic(table), _replica(table))


def copy_of(table: TableReport) -> str:
    """Returns what the topic was compared with, if with anything: ``replica`` or ``lake``."""
    return "replica" if table.replica is None else table.replica.kind


def line(table: TableReport, comparison: SideComparison) -> str:
    """Returns the verdict line: ``IDENTICAL public.orders: 1,000,000 rows at snapshot … (LSN …)``."""
    name = table.table if comparison.side == "topic" else f"{table.table} -> {comparison.name} {comparison.other}"
    return f"{VERDICT[comparison.verdict]} {name}: {comparison.said}"


def _topic(table: TableReport) -> SideComparison:
    counts = table.counts
    classes = by_class(counts)
    verdict = table.verdict
    if verdict == "different" and not counts.differences and table.replica is not None and table.replica.differences:
        verdict = "identical"
    place = f"at snapshot {table.snapshot} (LSN {table.lsn})"
    sentence = _sentence(table, verdict, counted(counts.source_rows, "row"), counts.identical, classes, place)
    return SideComparison("topic", "topic", table.topic, verdict, counts.identical, classes, sentence)


def _replica(table: TableReport) -> SideComparison:
    replica = table.replica
    assert replica is not None
    classes = by_class(replica)
    verdict = table.verdict
    if verdict != "not_verified":
        verdict = "different" if replica.differences else "identical"
    sentence = _sentence(table, verdict, counted(replica.rows, "row"), replica.identical, classes, replica.at)
    return SideComparison("replica", replica.kind, replica.table, verdict, replica.identical, classes, sentence)


def _sentence(
    table: TableReport,
    verdict: Verdict,
    rows: str,
    identical: int,
    classes: dict[DifferenceClass, int],
    place: str,
) -> str:
    if verdict == "not_verified":
        return table.reason or "no reason was recorded"
    if verdict == "identical":
        return f"{rows} {place}"
    differing = differences(classes)
    keys = counted(identical + sum(classes.values()), "key")
    return f"{differing:,} of {keys} {'differs' if differing == 1 else 'differ'} {place}"
