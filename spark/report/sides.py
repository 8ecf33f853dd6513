"""A table's comparisons, one per side: source with topic, and topic with replica if that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.base.words import counted
from cdc.spark.report.model import DifferenceClass, Side, TableReport, Verdict
from cdc.spark.report.words import CLASS, VERDICT


@dataclass(frozen=True, slots=True)
class SideComparison:
    """The result for one side of one table.

    Attributes:
        other: the name of the topic, or of the replica's table.
        classes: the number of keys in every class that this side has, zeros included.
        sentence: the result in words, without the verdict and the table's name.
    """

    side: Side
    other: str
    verdict: Verdict
    identical: int
    classes: dict[DifferenceClass, int]
    sentence: str

    @property
    def found(self) -> str:
        """The classes that are not empty, in words."""
        return ", ".join(f"{number:,} {CLASS[kind]}" for kind, number in self.classes.items() if number)

    @property
    def said(self) -> str:
        """The sentence, and the classes that it leaves out."""
        return f"{self.sentence}: {self.found}" if self.found and self.verdict != "not_verified" else self.sentence

    @property
    def differences(self) -> int:
        """The number of keys that are proven to differ."""
        return sum(number for kind, number in self.classes.items() if kind not in ("in_flight", "unverifiable"))

    @property
    def keys(self) -> int:
        """The number of keys that either side has."""
        return self.identical + sum(self.classes.values())


def comparisons(table: TableReport) -> tuple[SideComparison, ...]:
    """Returns the topic's comparison, followed by the replica's if there is one."""
    return (_topic(table),) if table.replica is None else (_topic(table), _replica(table))


def line(table: TableReport, comparison: SideComparison) -> str:
    """Returns the verdict line: ``IDENTICAL public.orders: 1,000,000 rows at snapshot … (LSN …)``."""
    name = table.table if comparison.side == "topic" else f"{table.table} -> replica {comparison.other}"
    return f"{VERDICT[comparison.verdict]} {name}: {comparison.said}"


def _topic(table: TableReport) -> SideComparison:
    counts = table.counts
    classes: dict[DifferenceClass, int] = {
        "missing_in_topic": counts.missing_in_topic,
        "extra_in_topic": counts.extra_in_topic,
        "value_mismatch": counts.value_mismatch,
        "foreign": counts.foreign,
        "in_flight": counts.in_flight,
        "unverifiable": counts.unverifiable,
    }
    verdict = table.verdict
    if verdict == "different" and not counts.differences and table.replica is not None and table.replica.differences:
        verdict = "identical"
    place = f"at snapshot {table.snapshot} (LSN {table.lsn})"
    sentence = _sentence(table, verdict, counted(counts.source_rows, "row"), counts.identical, classes, place)
    return SideComparison("topic", table.topic, verdict, counts.identical, classes, sentence)


def _replica(table: TableReport) -> SideComparison:
    replica = table.replica
    assert replica is not None
    classes: dict[DifferenceClass, int] = {
        "missing_in_replica": replica.missing_in_replica,
        "extra_in_replica": replica.extra_in_replica,
        "value_mismatch": replica.value_mismatch,
        "in_flight": replica.in_flight,
    }
    verdict = table.verdict
    if verdict != "not_verified":
        verdict = "different" if replica.differences else "identical"
    place = f"at LSN {replica.lsn}"
    sentence = _sentence(table, verdict, counted(replica.rows, "row"), replica.identical, classes, place)
    return SideComparison("replica", replica.table, verdict, replica.identical, classes, sentence)


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
    differing = sum(number for kind, number in classes.items() if kind not in ("in_flight", "unverifiable"))
    keys = counted(identical + sum(classes.values()), "key")
    return f"{differing:,} of {keys} {'differs' if differing == 1 else 'differ'} {place}"
