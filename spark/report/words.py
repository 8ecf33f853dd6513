"""The words and numbers that all views share, so that terminal, page and test report say the same."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cdc.base.words import counted, size
from cdc.spark.report.model import DifferenceClass, Report, TableReport, Verdict

VERDICT: Final[dict[Verdict, str]] = {
    "identical": "IDENTICAL",
    "different": "DIFFERENT",
    "not_verified": "NOT VERIFIED",
}

CLASS: Final[dict[DifferenceClass, str]] = {
    "missing_in_topic": "missing in topic",
    "extra_in_topic": "extra in topic",
    "missing_in_replica": "missing in replica",
    "extra_in_replica": "extra in replica",
    "value_mismatch": "values differ",
    "foreign": "foreign",
    "in_flight": "in flight",
}

MEANING: Final[dict[DifferenceClass, str]] = {
    "missing_in_topic": "the source has the row, but the topic has no live record of its key",
    "extra_in_topic": "the topic has a live record, but the source does not have the row",
    "missing_in_replica": "the topic has a live record, but the replica does not have the row",
    "extra_in_replica": "the replica has the row, but the topic has no live record of its key",
    "value_mismatch": "both have the key, but at least one column differs",
    "foreign": "the row is right, but another program wrote the record",
    "in_flight": "not judged: a newer record may have erased the one to compare",
}

OPERATION: Final = {"c": "insert", "u": "update", "d": "delete", "r": "backfill", "t": "truncate"}

SEES: Final = (
    "Every row committed at the snapshot: whether its key is there, and each compared column to the last digit.",
    "Lost deletes (missed tombstones), lost or stale versions, and a key in two spellings or in two partitions.",
    "Which record caused a difference: partition, offset, LSN, transaction.",
)

CANNOT_SEE: Final = (
    "Anything committed after the snapshot: the next run compares it.",
    "Keys in flight: they are counted, but not judged.",
    "Versions between two states: a compacted topic keeps only the last one.",
    "A wrong value in the source itself: the source is the truth that everything else is measured against.",
)


def class_word(kind: DifferenceClass, copy: str) -> str:
    """Returns the word for a class; ``copy`` is what has the place of the replica: ``replica`` or ``lake``."""
    return CLASS[kind].replace("replica", copy)


def class_meaning(kind: DifferenceClass, copy: str) -> str:
    """Returns the meaning of a class in a sentence; ``copy`` as for ``class_word``."""
    return MEANING[kind].replace("replica", copy)


def duration(seconds: float) -> str:
    """Writes a duration so that it reads at a glance: ``0.42 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def elapsed_s(report: Report) -> float:
    """Returns the seconds from the start of the run to its end."""
    return (datetime.fromisoformat(report.ended_at) - datetime.fromisoformat(report.started_at)).total_seconds()


def moment(iso: str) -> str:
    """Writes ``2026-11-21T14:03:20.123456+00:00`` as ``2026-11-21 14:03:20 UTC``; other text stays as it is."""
    try:
        parsed = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    zone = " UTC" if parsed.utcoffset() is not None and not parsed.utcoffset() else parsed.strftime(" %z").rstrip()
    return parsed.strftime("%Y-%m-%d %H:%M:%S") + zone


def headline(report: Report) -> str:
    """Sums the whole run up in one short sentence."""
    every = len(report.tables)
    if not every:
        return "No table was compared"
    different = sum(table.verdict == "different" for table in report.tables)
    unknown = sum(table.verdict == "not_verified" for table in report.tables)
    if every == 1:
        ending = "could not be verified" if unknown else "differs" if different else "is identical"
        return f"{report.tables[0].table} {ending}"
    if not different and not unknown:
        return f"All {every:,} tables are identical"
    parts = []
    if different:
        parts.append(f"{different:,} of {counted(every, 'table')} {'differs' if different == 1 else 'differ'}")
    if unknown:
        of_all = "" if different else f" of {counted(every, 'table')}"
        parts.append(f"{unknown:,}{of_all} could not be verified")
    return ", ".join(parts)


def limits(report: Report) -> tuple[str, ...]:
    """Returns what this run could not see."""
    tables = report.tables
    found = list(CANNOT_SEE)
    if skipped := sum(len(table.columns_skipped) for table in tables):
        found.append(f"{counted(skipped, 'column')} left out of the comparison; each table says which, and why.")
    if filtered := sum(table.where is not None for table in tables):
        found.append(f"Rows outside the filter of {counted(filtered, 'table')}.")
    if sum(table.mode == "incremental" for table in tables):
        found.append("Damage to records that an earlier full run had already read (incremental mode).")
    if sum(table.passes > 1 for table in tables):
        found.append("Whole tables at one snapshot, if they were compared in passes: each pass is exact at its own.")
    return tuple(found)


def lag(table: TableReport) -> str:
    """Returns how far the bridge was behind when the run began; empty if unknown."""
    parts = [] if table.lag_s is None else [duration(table.lag_s)]
    parts += [] if table.lag_bytes is None else [size(table.lag_bytes)]
    return ", ".join(parts)
