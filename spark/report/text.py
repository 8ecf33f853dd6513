"""The report on a terminal: first a verdict line for each table, then the details; plain ASCII, 120 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from cdc.base.words import counted
from cdc.spark.report.model import Report, Sample, TableReport
from cdc.spark.report.sides import SideComparison, comparisons, line
from cdc.spark.report.values import ascii_text, escaped, shortened
from cdc.spark.report.words import OPERATION, class_word, duration, elapsed_s, headline, lag, limits

WIDTH: Final = 120
# How many samples to show per table, side and class: enough to see a pattern. The page and the Parquet files have more.
_SAMPLES: Final = 2
_EXAMPLES: Final = 1


def as_text(report: Report) -> str:
    """Returns the report as lines of at most ``WIDTH`` characters, ending with a newline."""
    lines = [*_verdicts(report), "", *_run(report)]
    for table in report.tables:
        if table.verdict == "identical" and not table.samples:
            continue
        for comparison in comparisons(table):
            lines += ["", f"{table.table} = {comparison.name} {comparison.other}", *details(table, comparison)]
    lines += ["", "Not seen by this comparison:"]
    lines += [part for limit in limits(report) for part in _wrapped(f"- {limit}", "  ")]
    return "".join(f"{_ascii(each)}\n" for each in lines)


def details(table: TableReport, comparison: SideComparison) -> list[str]:
    """Returns the details of a verdict: counts, causes, columns and a few samples of one side."""
    found = _wrapped("keys     " + _counts(comparison)) if comparison.keys else []
    if comparison.side == "topic":
        found += _wrapped("read     " + _reading(table))
        for bar in table.causes:
            found += _wrapped(f"cause    {bar.count:,} x {shortened(bar.label)}")
        for column in table.columns:
            hint = f" ({shortened(column.hint)})" if column.hint else ""
            found += _wrapped(f"column   {column.name} differs in {counted(column.mismatches, 'key')}{hint}")
            for example in column.examples[:_EXAMPLES]:
                pair = f"source {ascii_text(example.source)}, other {ascii_text(example.other)}"
                found += _wrapped(f"         for instance {pair}")
    for sample in _chosen(table.samples, comparison):
        found += _sample(sample, comparison.name)
    if comparison.side == "topic" and table.keys_path:
        found += _wrapped(f"all keys {table.keys_path}")
    if comparison.side == "topic" and table.repair is not None:
        repair = table.repair
        verified = f"{repair.verified:,} verified, {repair.still_different:,} still different"
        found += _wrapped(f"repair   {counted(repair.keys, 'key')} handed to the bridge: {verified}")
    return [_ascii(each) for each in found]


def _verdicts(report: Report) -> Iterator[str]:
    for table in report.tables:
        for comparison in comparisons(table):
            yield from _wrapped(line(table, comparison), "", "    ")
        if table.verdict == "not_verified" and table.remedy:
            yield from _wrapped(f"what to do: {table.remedy}", "    ")


def _run(report: Report) -> Iterator[str]:
    source = report.source
    values = "; values hidden" if report.redacted else ""
    yield from _wrapped(f"{headline(report)}. Exit code {report.exit_code}{values}.", "")
    where = f"{source.database} at {source.host}:{source.port} (PostgreSQL {source.server_version})"
    yield from _wrapped(
        f"Run {report.run} on {where}, Kafka {report.kafka}, began {report.started_at}, took "
        f"{duration(elapsed_s(report))}.",
        "",
    )


def _counts(comparison: SideComparison) -> str:
    named = [f"{comparison.identical:,} identical"]
    named += [
        f"{number:,} {class_word(kind, comparison.name)}" for kind, number in comparison.classes.items() if number
    ]
    return ", ".join(named)


def _reading(table: TableReport) -> str:
    counts = table.counts
    parts = [
        f"{counted(counts.source_rows, 'row')} of the source",
        f"{counted(counts.records, 'record')} in {counted(len(table.offsets), 'partition')}",
        counted(counts.live_keys, "live key"),
        counted(counts.tombstones, "tombstone"),
    ]
    if lags := lag(table):
        parts.append(f"lag at start {lags}")
    return ", ".join(parts)


def _chosen(samples: Iterable[Sample], comparison: SideComparison) -> Iterator[Sample]:
    seen: Counter[str] = Counter()
    for sample in samples:
        if sample.side == comparison.side and seen[sample.difference] < _SAMPLES:
            seen[sample.difference] += 1
            yield sample


def _sample(sample: Sample, copy: str) -> Iterator[str]:
    yield from _wrapped(f"sample   {class_word(sample.difference, copy)}: key {ascii_text(sample.key)[1:-1]}")
    if sample.cause:
        yield from _wrapped(f"         cause: {shortened(sample.cause)}")
    if sample.offset is not None:
        parts = [f"partition {sample.partition} offset {sample.offset}"]
        parts += [] if sample.op is None else [OPERATION.get(sample.op, sample.op)]
        parts += [] if sample.lsn is None else [f"LSN {sample.lsn} seq {sample.seq}"]
        parts += [] if sample.xid is None else [f"xid {sample.xid}"]
        parts += [] if sample.commit_time is None else [f"committed {sample.commit_time}"]
        yield from _wrapped("         record: " + ", ".join(parts))
    for name in sample.differing:
        pair = [ascii_text(row.get(name)) for row in (sample.source, sample.other) if row is not None]
        yield from _wrapped(f"         {name}: " + " | ".join(pair))


def _wrapped(text: str, indent: str = "  ", hanging: str | None = None) -> list[str]:
    """Escapes a text, then folds it: in this order, because escapes make it longer."""
    rest = indent + " " * 9 if hanging is None else hanging
    return textwrap.wrap(
        _ascii(text), WIDTH, initial_indent=indent, subsequent_indent=rest, drop_whitespace=True, break_on_hyphens=False
    )


def _ascii(text: str) -> str:
    return "".join(escaped(letter) for letter in text)
